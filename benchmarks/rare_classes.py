"""What finds a rare class of two: the default, balanced batches, and other losses.

    python benchmarks/rare_classes.py > results/rare_classes/README.md

Half of each table is trained on under right labels and under 10% wrong ones, by `imae.train` with
everything else left at its default; the other half, with right labels, is predicted. A cell is
plain accuracy, the mean over both classes, and F1 of the rare class, means over two seeds.
"""

import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from machine import command_line
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score
from sklearn.preprocessing import StandardScaler

from imae.data.batches import balanced_sizes
from imae.noise import symmetric
from imae.train import train
from imae.train.predict import predict

SEEDS = (3, 4)
BATCH_SIZE = 64
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "balanced batches": {},
    "cap 0.95": {"method": {"name": "imae_capped", "arguments": {"cap": 0.95}}},
    "T = 4": {"method": {"name": "imae_capped", "arguments": {"T": 4.0}}},
    "gce": {"method": {"name": "gce"}},
    "cce": {"method": {"name": "cce"}},
}
Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


def thinned(rows: Floats, is_rare: NDArray[np.bool_], share: float, seed: int) -> Any:
    draws = np.random.Generator(np.random.PCG64(seed))
    others, rare = np.flatnonzero(~is_rare), np.flatnonzero(is_rare)
    number = round(share * len(others) / (1 - share))
    kept = draws.permutation(np.concatenate([others, draws.permutation(rare)[:number]]))
    return rows[kept], is_rare[kept].astype(np.int64)


def tables(seed: int) -> Iterator[tuple[str, Floats, Ints]]:
    rows, labels = load_digits(return_X_y=True)
    yield "the digit 8, 3%", *thinned(rows, labels == 8, 0.03, seed)
    rows, labels = load_breast_cancer(return_X_y=True)
    yield "breast cancer, 5%", *thinned(rows, labels == 0, 0.05, seed)
    made: dict[str, Any] = {"n_features": 20, "n_informative": 6, "flip_y": 0}
    for name, apart, place in (("made, 2%", 1.5, seed), ("made, overlap, 2%", 0.6, 50 + seed)):
        options = {"weights": [0.98], "class_sep": apart, "random_state": place}
        yield name, *make_classification(4000, **made, **options)


def predicted(rows: Floats, given: Ints, others: Floats, variant: str, seed: int) -> Ints:
    if variant == "LogisticRegression":
        return np.asarray(LogisticRegression(max_iter=1000).fit(rows, given).predict(others))
    settings = VARIANTS[variant]
    if variant == "balanced batches":  # as the hint of `imae train` says, a tenth held out
        counts = np.bincount(given)
        sizes = balanced_sizes(counts - counts // 10 - 1, BATCH_SIZE)
        assert sizes is not None
        settings = {"data": {"balanced": sizes[0]}, "train": {"batch_size": sizes[1]}}
    with tempfile.TemporaryDirectory() as folder:
        out = {"out": f"{folder}/run", "seed": seed, "machine": {"threads": 1}}
        return predict(train({**out, **settings}, data=(rows, given)), others).labels


def main() -> None:
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    names = ("LogisticRegression", *VARIANTS)
    print("# A rare class of two\n\n`python benchmarks/rare_classes.py`, seeds", *SEEDS)
    print("\nPlain accuracy, mean over both classes, F1 of the rare class, in %; labels of the")
    print("training rows as they are, and 10% of them wrong.\n")
    print("| table | wrong labels |" + "".join(f" {name} |" for name in names))
    print("|---" * (2 + len(names)) + "|")
    found: dict[tuple[str, float], list[list[tuple[float, float, float]]]] = {}
    for seed in SEEDS:
        for name, rows, labels in tables(seed):
            rows = StandardScaler().fit_transform(rows).astype(np.float32)
            half = len(rows) // 2
            for rate in (0.0, 0.1):
                given = symmetric(labels[:half], rate=rate, num_classes=2, seed=seed).labels
                cells = []
                for variant in names:
                    print(seed, name, rate, variant, file=sys.stderr)
                    guess = predicted(rows[:half], given, rows[half:], variant, seed)
                    true = labels[half:]
                    both = balanced_accuracy_score(true, guess)
                    cells.append((float((guess == true).mean()), both, f1_score(true, guess)))
                found.setdefault((name, rate), []).append(cells)
    for (name, rate), each in found.items():
        mean = 100 * np.mean(each, axis=0)
        shown = [" / ".join(f"{number:.0f}" for number in cell) for cell in mean]
        print(f"| {name} | {rate:.0%} |", " | ".join(shown), "|")


if __name__ == "__main__":
    main()
