"""Whether balanced accuracy chooses a better best epoch on imbalanced data.

    python benchmarks/best_epoch.py --out results/best_epoch [--seeds 0 1 2]

Tables with rare classes are trained on, 10% of the rows held out. The best epoch is chosen by plain
accuracy on the held-out given labels, as `imae train` does, or by the mean over classes of the
accuracy on each. The table has the mean over classes of the test accuracy at both, at the last
epoch and at the best one in hindsight. With two classes the recommended loss predicts no rare row
unless batches are balanced, so they are balanced; with ten classes both are measured. The results
of finished runs are reused.
"""

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import command_line, describe
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, make_classification

from imae.train import learner, train

SEEDS = (0, 1)
EPOCHS, BATCH_SIZE = 30, 64
SETS = {
    "mc1": ("two classes, 1% rare", "symmetric:0.1"),
    "mc3": ("two classes, 3% rare", "symmetric:0.1"),
    "bc10": ("breast cancer, 9% rare", "symmetric:0.1"),
    "dg3": ("the digit 8 against others, 3% rare", "symmetric:0.1"),
    "dx10": ("ten digits, five with 10 rows", "symmetric:0.3"),
    "dx20": ("ten digits, five with 20 rows", "symmetric:0.3"),
}
Rows = tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/best_epoch"))
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    record = arguments.out / "epochs.jsonl"
    found = [json.loads(line) for line in record.open()] if record.exists() else []
    done = [(each["name"], each["variant"], each["noise"], each["seed"]) for each in found]
    for seed in arguments.seeds:
        for name in arguments.sets:
            for noise in (None, SETS[name][1]):
                for variant in variants(name):
                    if (name, variant, noise, seed) not in done:
                        found.append(measured(name, variant, noise, seed))
                        with record.open("a") as file:
                            file.write(json.dumps(found[-1]) + "\n")
                        write_table(found, arguments.out)
    write_table(found, arguments.out)


def variants(name: str) -> tuple[str, ...]:
    return ("default", "balanced", "cce") if name.startswith("dx") else ("balanced", "cce")


def measured(name: str, variant: str, noise: str | None, seed: int) -> dict[str, Any]:
    """Accuracies after every epoch: on test and held-out rows, plain and balanced."""
    x, y, is_test = draw(name, seed)
    counts = np.bincount(y[~is_test])
    number = min(BATCH_SIZE // len(counts), int(0.9 * counts.min()))
    is_balanced = variant == "balanced"
    rows: list[dict[str, float]] = []
    plain = learner.measures

    def noted(prepared: Any, **predicted: Any) -> Any:
        test, held = prepared.test.labels, prepared.validation.labels
        rows.append(
            {
                "test": float((predicted["test"] == test).mean()),
                "btest": balanced(predicted["test"], test),
                "val": float((predicted["validation"] == held).mean()),
                "bval": balanced(predicted["validation"], held),
            }
        )
        return plain(prepared, **predicted)

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "rows.npz"
        np.savez(data, x=x.astype(np.float32), y=y, split=np.where(is_test, "test", "train"))
        config = {
            "data": {"name": str(data), "balanced": number if is_balanced else None},
            "noise": noise,
            "method": {"name": "cce" if variant == "cce" else "imae_capped"},
            "train": {
                "epochs": EPOCHS,
                "batch_size": len(counts) * number if is_balanced else BATCH_SIZE,
            },
            "machine": {"threads": 1},
            "seed": seed,
            "out": str(Path(folder) / "run"),
        }
        learner.measures = noted
        try:
            train(config)
        finally:
            learner.measures = plain
    return {"name": name, "variant": variant, "noise": noise, "seed": seed, "rows": rows}


def balanced(predicted: NDArray[Any], labels: NDArray[Any]) -> float:
    return float(np.mean([(predicted[labels == c] == c).mean() for c in np.unique(labels)]))


def draw(name: str, seed: int) -> Rows:
    """Inputs, labels, and which rows are for testing; rare classes are thinned for training."""
    kind, number = name[:2], int(name[2:])
    if kind == "mc":
        x, y = make_classification(
            8000, 20, n_informative=8, weights=[1 - number / 100], class_sep=1.5, flip_y=0,
            random_state=seed,
        )  # fmt: skip
        return x, y, np.arange(8000) >= 4000
    x, y = load_breast_cancer(return_X_y=True) if kind == "bc" else load_digits(return_X_y=True)
    y = 1 - y if kind == "bc" else (y == 8).astype(int) if kind == "dg" else y
    order = np.random.default_rng(seed).permutation(len(y))
    x, y = x[order], y[order]
    is_test = np.arange(len(y)) < (200 if kind == "bc" else 500)
    if kind != "dx":
        number = int(number / 100 * ((~is_test & (y == 0)).sum() if kind == "bc" else 1200))
    is_kept = np.ones(len(y), bool)
    for rare in range(5) if kind == "dx" else (1,):
        is_kept[np.flatnonzero((y == rare) & ~is_test)[number:]] = False
    return x[is_kept], y[is_kept], is_test[is_kept]


def write_table(found: list[dict[str, Any]], out: Path) -> None:
    lines = [
        "# The best epoch of imbalanced data",
        "",
        f"Mean over classes of the test accuracy (%), mean over seeds; {EPOCHS} epochs; "
        f"`python benchmarks/best_epoch.py`. {describe()}",
        "",
        "| data | labels | training | seeds | by plain accuracy | by balanced accuracy | "
        "last epoch | hindsight |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    gains = []
    words = {"default": "recommended", "balanced": "recommended, balanced batches", "cce": "cce"}
    for name, (title, wrong) in SETS.items():
        for noise in (None, wrong):
            for variant in variants(name):
                key = (name, variant, noise)
                runs = [
                    each["rows"]
                    for each in found
                    if (each["name"], each["variant"], each["noise"]) == key
                ]
                if not runs:
                    continue
                shown = [statistics.mean(at(rows, by) for rows in runs) for by in ("val", "bval")]
                gains.append(shown[1] - shown[0])
                shown.append(statistics.mean(100 * rows[-1]["btest"] for rows in runs))
                shown.append(statistics.mean(at(rows, "btest") for rows in runs))
                numbers = " | ".join(f"{each:.1f}" for each in shown)
                noisy = noise or "right"
                lines.append(f"| {title} | {noisy} | {words[variant]} | {len(runs)} | {numbers} |")
    if gains:
        better, worse = sum(each > 0.5 for each in gains), sum(each < -0.5 for each in gains)
        lines += [
            "",
            f"Balanced against plain: {statistics.mean(gains):+.1f} points on average over "
            f"{len(gains)} lines; more than half a point better in {better}, worse in {worse}.",
        ]
    (out / "table.md").write_text("\n".join(lines) + "\n")


def at(rows: list[dict[str, float]], key: str) -> float:
    """Balanced test accuracy in percent at the last epoch with the highest value of a measure."""
    highest = max(row[key] for row in rows)
    return 100 * [row for row in rows if row[key] == highest][-1]["btest"]


if __name__ == "__main__":
    main()
