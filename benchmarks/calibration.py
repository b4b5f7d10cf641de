"""How far the probabilities of ``IMAEClassifier`` can be taken at their word, under wrong labels.

    python benchmarks/calibration.py > results/calibration/table.md

Tables of scikit-learn. 30% of the rows are the test part and keep their labels; of the labels of
the others 0, 20 or 40% are flipped to another class. All parameters are the defaults; rows are
scaled. Measured on the true labels of the test part: accuracy, the mean of -log p, and the expected
calibration error, the mean gap between confidence and accuracy over 15 equal intervals of
confidence. *capped* is the same network before ``predict_proba`` takes its cap back.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from imae.integrations.sklearn import IMAEClassifier
from imae.noise import symmetric

RATES = (0.0, 0.2, 0.4)
SEEDS = range(5)
BINS = 15
TABLES: dict[str, Callable[..., Any]] = {
    "digits": load_digits,
    "breast cancer": load_breast_cancer,
    "wine": load_wine,
}

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def measures(p: Floats, labels: Ints) -> tuple[float, float, float]:
    """Accuracy in percent, mean of -log p, expected calibration error."""
    surest, is_right = p.max(1), p.argmax(1) == labels
    interval = np.minimum((surest * BINS).astype(int), BINS - 1)
    gaps = [abs((surest - is_right)[interval == each].sum()) for each in range(BINS)]
    likelihood = np.maximum(p[np.arange(len(labels)), labels], 1e-12)
    right, loss = float(is_right.mean()), -float(np.log(likelihood).mean())
    return 100 * right, loss, float(sum(gaps)) / len(labels)


def probabilities(train: tuple[Floats, Ints], rows: Floats, seed: int) -> dict[str, Floats]:
    """Of each model, for rows that it was not trained on."""
    plain = MLPClassifier(random_state=seed).fit(*train)
    stopped = MLPClassifier(early_stopping=True, random_state=seed).fit(*train)
    ours = IMAEClassifier(random_state=seed).fit(*train)
    linear = IMAEClassifier(hidden_layer_sizes=(), random_state=seed).fit(*train)
    with torch.no_grad():
        capped = ours.network_(torch.from_numpy(rows)).softmax(1).numpy()
    return {
        "MLPClassifier": plain.predict_proba(rows),
        "MLPClassifier, early_stopping": stopped.predict_proba(rows),
        "IMAEClassifier, capped": capped,
        "IMAEClassifier": ours.predict_proba(rows),
        "IMAEClassifier, linear": linear.predict_proba(rows),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    heads = [f"{name}, {rate:.0%}" for name in TABLES for rate in RATES]
    print(
        f"Accuracy in percent / mean of -log p / expected calibration error on true labels, mean "
        f"over {len(SEEDS)} seeds;\nscikit-learn {sklearn.__version__}.\n"
    )
    found: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for name, load in TABLES.items():
        rows, labels = load(return_X_y=True)
        for rate in RATES:
            for seed in SEEDS:
                parts = train_test_split(
                    rows, labels, test_size=0.3, stratify=labels, random_state=seed
                )
                scaler = StandardScaler().fit(parts[0])
                given = symmetric(
                    parts[2], rate=rate, num_classes=int(labels.max()) + 1, seed=seed
                ).labels
                train = (scaler.transform(parts[0]), given)
                models = probabilities(train, scaler.transform(parts[1]), seed)
                for model, p in models.items():
                    cell = found.setdefault(model, {}).setdefault(f"{name}, {rate:.0%}", [])
                    cell.append(measures(p, parts[3]))
    print("| | " + " | ".join(heads) + " |\n" + "|---" * (len(heads) + 1) + "|")
    for model, cells in found.items():
        means = [np.array(cells[head]).mean(axis=0).tolist() for head in heads]
        shown = [f"{right:.1f} / {loss:.2f} / {gap:.2f}" for right, loss, gap in means]
        print(f"| {model} | " + " | ".join(shown) + " |")


if __name__ == "__main__":
    main()
