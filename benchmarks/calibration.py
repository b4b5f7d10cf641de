"""Accuracy and calibration of ``IMAEClassifier`` with wrong labels.

    python benchmarks/calibration.py > results/calibration/table.md

Tables of scikit-learn, and the image segments of ``benchmarks/boosting.py``. 30% of the rows are
the test part and keep their labels; of the labels of the others 0, 20 or 40% are flipped to another
class (0, 10 or 20% where a tenth of the rows is an eight). All parameters are the defaults; rows
are scaled. Measured on the true labels of the test part: accuracy, the mean of -log p, and the
expected calibration error, the mean gap between confidence and accuracy over 15 equal intervals of
confidence. *capped* is the same network before ``predict_proba`` undoes its cap; *auditor* is
``LogisticRegression`` without the rows that ``LabelAuditor`` drops.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn
import torch
from boosting import image_segments
from machine import command_line
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from imae.integrations.sklearn import IMAEClassifier, LabelAuditor
from imae.noise import symmetric

SEEDS = range(5)
BINS = 15

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def eights() -> tuple[Floats, Ints]:
    rows, labels = load_digits(return_X_y=True)
    return rows, (labels == 8).astype(np.int64)


TABLES: dict[str, tuple[Callable[[], Any], tuple[float, ...]]] = {
    "iris": (lambda: load_iris(return_X_y=True), (0.0, 0.2, 0.4)),
    "wine": (lambda: load_wine(return_X_y=True), (0.0, 0.2, 0.4)),
    "breast cancer": (lambda: load_breast_cancer(return_X_y=True), (0.0, 0.2, 0.4)),
    "digits": (lambda: load_digits(return_X_y=True), (0.0, 0.2, 0.4)),
    "image segments": (image_segments, (0.0, 0.2, 0.4)),
    "an eight or not": (eights, (0.0, 0.1, 0.2)),
}


def measures(p: Floats, labels: Ints) -> tuple[float, float, float]:
    """Accuracy in percent, mean of -log p, expected calibration error."""
    surest, is_right = p.max(1), p.argmax(1) == labels
    interval = np.minimum((surest * BINS).astype(int), BINS - 1)
    gaps = [abs((surest - is_right)[interval == each].sum()) for each in range(BINS)]
    likelihood = np.maximum(p[np.arange(len(labels)), labels], 1e-12)
    right, loss = float(is_right.mean()), -float(np.log(likelihood).mean())
    return 100 * right, loss, float(sum(gaps)) / len(labels)


def probabilities(train: tuple[Floats, Ints], rows: Floats, seed: int) -> dict[str, Floats]:
    """Probabilities of each model, for rows that it was not trained on."""
    logistic = LogisticRegression(max_iter=2000)
    models = {
        "LogisticRegression": logistic,
        "MLPClassifier": MLPClassifier(random_state=seed),
        "MLPClassifier, early_stopping": MLPClassifier(early_stopping=True, random_state=seed),
        "IMAEClassifier": IMAEClassifier(random_state=seed),
        "IMAEClassifier, linear": IMAEClassifier(hidden_layer_sizes=(), random_state=seed),
        "auditor": LabelAuditor(logistic, random_state=seed),
    }
    found = {name: model.fit(*train).predict_proba(rows) for name, model in models.items()}
    with torch.no_grad():
        capped = models["IMAEClassifier"].network_(torch.from_numpy(rows)).softmax(1).numpy()
    return {**found, "IMAEClassifier, capped": capped}


def measured(rows: Floats, labels: Ints, rate: float, seed: int) -> dict[str, tuple[float, ...]]:
    """The measures of each model on one split of a table."""
    parts = train_test_split(rows, labels, test_size=0.3, stratify=labels, random_state=seed)
    scaler = StandardScaler().fit(parts[0])
    given = symmetric(parts[2], rate=rate, num_classes=int(labels.max()) + 1, seed=seed).labels
    models = probabilities((scaler.transform(parts[0]), given), scaler.transform(parts[1]), seed)
    return {model: measures(p, parts[3]) for model, p in models.items()}


def main() -> None:
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(
        f"Accuracy in percent / mean of -log p / expected calibration error on true labels, mean "
        f"over {len(SEEDS)} seeds;\nscikit-learn {sklearn.__version__}.\n"
    )
    is_first = True
    for name, (load, rates) in TABLES.items():
        rows, labels = load()
        for rate in rates:
            found = [measured(rows, labels, rate, seed) for seed in SEEDS]
            if is_first:
                print("| wrong labels | " + " | ".join(found[0]) + " |")
                print("|---" * (len(found[0]) + 1) + "|")
                is_first = False
            means = [np.mean([each[model] for each in found], axis=0) for model in found[0]]
            shown = [f"{right:.1f} / {loss:.2f} / {gap:.2f}" for right, loss, gap in means]
            print(f"| {name}, {rate:.0%} | " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
