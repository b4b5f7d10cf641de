"""How much is lost by tuning on given labels instead of clean ones.

    python benchmarks/tune.py --scratch FOLDER --out results/tune [--only digits]

Each setting is searched twice by `imae tune`, with the same number of trials and seed: once by
held-out given labels, once by a clean validation file with as many rows. The test accuracies of the
weights that `imae predict` uses from the chosen run are compared; no choice uses them. "Other
seeds" are the chosen settings on three other draws of noise, held-out rows and weights: a clean
file can also tell which run was lucky, and that does not depend on the settings. The last column is
the best trial of both searches in hindsight. For CIFAR, the rows are frozen features
(`efficientnet_lite0`) of 10,000 images. A search that was stopped continues; finished ones are
reused.
"""

import json
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import command_line, describe

from imae.data import Table, load
from imae.records import RunFolder
from imae.train import build_config, train, with_values
from imae.train.preparation import frozen_features
from imae.tune import Outcome, tune

TRIALS = 12
OTHERS = 3  # other seeds on which the chosen settings are trained
SEEDS = (1, 2)
ROWS, CLEAN_ROWS = 10_000, 1_000
SETTINGS = {
    "digits, symmetric 40%": ("digits", "symmetric:0.4"),
    "digits, asymmetric 40%": ("digits", "pairs:0.4"),
    "CIFAR-10 features, symmetric 40%": ("cifar10", "symmetric:0.4"),
    "CIFAR-10 features, asymmetric 40%": ("cifar10", "cifar10_asymmetric:0.4"),
    "CIFAR-10N worst, features": ("cifar10n", None),
    "CIFAR-100N, features": ("cifar100n", None),
}
DEFAULTS = {"method.arguments.T": "auto", "method.arguments.cap": 0.75}
PAIRS = "7:1,2:7,5:6,6:5,3:8"


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--scratch", type=Path, required=True, help="folder for data and runs")
    parser.add_argument("--out", type=Path, default=Path("results/tune"))
    parser.add_argument("--only", default="", help="settings whose name begins so")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for title in SETTINGS:
        for seed in arguments.seeds:
            if title.startswith(arguments.only):
                path = arguments.out / f"{slug(title)}-seed{seed}.json"
                if not path.exists():
                    found = measured(title, seed, arguments.scratch)
                    path.write_text(json.dumps(found, indent=2) + "\n")
                found = json.loads(path.read_text())
                for kind in ("given", "clean"):
                    if "test_of_other_seeds" not in found[kind]:
                        tests = of_other_seeds(title, seed, found[kind], arguments.scratch)
                        found[kind]["test_of_other_seeds"] = tests
                        path.write_text(json.dumps(found, indent=2) + "\n")
                write_table(arguments.out)


def slug(title: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def measured(title: str, seed: int, scratch: Path) -> dict[str, object]:
    """Chosen settings and their test accuracy, by given and by clean labels."""
    config = settings_of(title, seed, scratch)
    clean = write_rows(SETTINGS[title][0], scratch)[1]
    found: dict[str, object] = {"setting": title, "seed": seed, "trials": TRIALS}
    highest = 0.0
    for kind, file in (("given", None), ("clean", clean)):
        out = scratch / f"{slug(title)}-seed{seed}-{kind}"
        outcome = tune(config, trials=TRIALS, clean_validation=file, out=out, say=print)
        tests = [test_accuracy(outcome, each.settings) for each in outcome.trials if each.accuracy]
        highest = max([highest, *tests])
        found[kind] = {
            "settings": outcome.settings,
            "accuracy": outcome.chosen.accuracy,
            "standard_error": outcome.standard_error,
            "test": test_accuracy(outcome, outcome.chosen.settings),
            "test_of_defaults": test_accuracy(outcome, DEFAULTS),
        }
    return {**found, "highest_test": highest}


def settings_of(title: str, seed: int, scratch: Path) -> dict[str, Any]:
    """The settings that are not searched."""
    data, noise = SETTINGS[title]
    rows, _ = write_rows(data, scratch)
    return {
        "data": {"name": str(rows)},
        "noise": noise,
        "noise_map": PAIRS if noise is not None and noise.startswith("pairs") else None,
        "train": {
            "epochs": 20 if data == "digits" else 10,
            "batch_size": 64 if data == "digits" else 128,
        },
        "machine": {"threads": 1},
        "seed": seed,
    }


def of_other_seeds(title: str, seed: int, found: Mapping[str, Any], scratch: Path) -> list[float]:
    """Test accuracy of the chosen settings on other draws of noise, held-out rows and weights."""
    tests = []
    for other in range(100 * seed, 100 * seed + OTHERS):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            content = {**settings_of(title, other, scratch), "out": folder}
            run = train(build_config(with_values(content, dict(found["settings"]))))
            assert run.result is not None
            tests.append(float(run.result["best"]["test_accuracy"]))
    return tests


def test_accuracy(outcome: Outcome, settings: Mapping[str, Any]) -> float:
    """Test accuracy at the best epoch of the run with these settings, which may be a retry."""
    arguments = {
        key.removeprefix("method.arguments."): value
        for key, value in settings.items()
        if key.startswith("method.arguments.")
    }
    for path in sorted((outcome.folder / "trials").iterdir()):
        run = RunFolder(path)
        result = run.result()
        if result is not None and run.config()["method"]["arguments"] == arguments:
            return float(result["best"]["test_accuracy"])
    raise LookupError(f"{outcome.folder}: no run has {arguments}")


def write_rows(data: str, scratch: Path) -> tuple[Path, Path]:
    """Training and test rows in one file, and clean validation rows, disjoint, in another."""
    rows, clean = scratch / f"{data}.npz", scratch / f"{data}-clean.npz"
    if clean.exists():
        return rows, clean
    scratch.mkdir(parents=True, exist_ok=True)
    loaded = load(data, variant="worst" if data == "cifar10n" else None)
    assert loaded.test is not None
    number, held = len(loaded.train), len(loaded.train) // 10
    if data != "digits":
        number, held = ROWS + CLEAN_ROWS, CLEAN_ROWS
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(loaded.train))[:number]
    parts = [loaded.train.take(order), loaded.test]
    if data == "digits":
        inputs = [part.inputs.batch(np.arange(len(part)), generator=None) for part in parts]
        x_train, x_test = (each.flatten(1).numpy() for each in inputs)
    else:
        extract = frozen_features("efficientnet_lite0")
        tables = [extract(part).inputs for part in parts]
        x_train, x_test = (each.values for each in tables if isinstance(each, Table))
    given, test = parts[0].labels, parts[1].labels
    truth = given if parts[0].clean_labels is None else parts[0].clean_labels
    x, y = np.concatenate([x_train[held:], x_test]), np.concatenate([given[held:], test])
    split = np.array(["train"] * (number - held) + ["test"] * len(test))
    np.savez(rows, x=x.astype(np.float32), y=y, split=split)
    np.savez(clean, x=x_train[:held].astype(np.float32), y=truth[:held])
    return rows, clean


def write_table(out: Path) -> None:
    lines = [
        "# Tuning without clean labels",
        "",
        f"Test accuracy (%) of the run that a search of {TRIALS} trials chose, mean over seeds; "
        "`python benchmarks/tune.py`.",
        "",
        "| setting | seeds | by given | by clean | difference | other seeds, by given | "
        "by clean | difference | defaults | hindsight |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    differences, others = [], []
    for title in SETTINGS:
        paths = sorted(out.glob(f"{slug(title)}-*.json"))
        records = [json.loads(path.read_text()) for path in paths]
        if not records:
            continue

        def mean(*keys: str, records: list[Any] = records) -> float:
            values = []
            for record in records:
                value: Any = record
                for key in keys:
                    value = value[key]
                values.append(100 * statistics.fmean(value if isinstance(value, list) else [value]))
            return statistics.fmean(values)

        given, clean = mean("given", "test"), mean("clean", "test")
        differences.append(given - clean)
        shown = "- | - | -"  # not trained on other seeds yet
        if all("test_of_other_seeds" in each["clean"] for each in records):
            pair = [mean(kind, "test_of_other_seeds") for kind in ("given", "clean")]
            others.append(pair[0] - pair[1])
            shown = f"{pair[0]:.1f} | {pair[1]:.1f} | {others[-1]:+.1f}"
        lines.append(
            f"| {title} | {len(records)} | {given:.1f} | {clean:.1f} | {given - clean:+.1f} | "
            f"{shown} | "
            f"{mean('given', 'test_of_defaults'):.1f} | {mean('highest_test'):.1f} |"
        )
    lines += [
        "",
        f"On average {statistics.fmean(differences):+.1f} points for the chosen run, and "
        f"{statistics.fmean(others or [0.0]):+.1f} for the chosen settings on other seeds. "
        f"Aim: at least -1.0. {describe()}",
    ]
    (out / "table.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
