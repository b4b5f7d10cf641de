"""How well an audit finds wrong labels, beside cleanlab and simpler rules.

    python benchmarks/audit.py detect --out results/audit      # tables of results/audit/README.md
    python benchmarks/audit.py scratch                         # the same from scratch, budget short
    python benchmarks/audit.py round --out results/audit --photos FOLDER
    python benchmarks/audit.py photos --photos FOLDER          # the command `imae audit` on photos
    python benchmarks/audit.py table --out results/audit       # tables of the existing records
    python benchmarks/audit.py size                            # a million rows, a hundred classes

``detect`` trains a head on frozen features of all 50,000 rows for each set and seed, once with the
audit's loss and once with cross entropy, and compares ways to find wrong labels: the audit of each
run; cleanlab on the probabilities of its best weights by held-out labels, on probabilities from 3
folds at the cost of one run and of three, and on 5-fold logistic regression; the raw margin (AUM);
and the rule that a label is wrong if those best weights predict another. ``scratch`` does the same,
without the regression, for runs on 5,000 images at the budget ``short`` of the recipes.
``photos`` audits photos with 30% of the labels made wrong, and as they are. Finished cells are read
from ``--out``; with ``--runs FOLDER`` the runs are kept, so that another audit of them needs no
training.
"""

import argparse
import contextlib
import csv
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))

from machine import command_line, describe

from imae.audit import Audit, audit, mean_disbelief, mean_negative_margin
from imae.audit.calibrate import flag_count
from imae.audit.sources import ARGUMENTS
from imae.data import ArrayImages, Data, Split
from imae.recipes.protocols import CIFAR10, CIFAR100, short
from imae.recipes.recipe import merged
from imae.records import EpochDynamics, RunFolder
from imae.train import Run, build_config, resume, train
from imae.train.rows import prepare

SETS: dict[str, dict[str, Any]] = {
    "cifar10n worst": {"data": {"name": "cifar10n", "options": {"variant": "worst"}}},
    "cifar10n aggregate": {"data": {"name": "cifar10n", "options": {"variant": "aggregate"}}},
    "cifar100n": {"data": {"name": "cifar100n"}},
    "cifar10 symmetric 40%": {"data": {"name": "cifar10"}, "noise": "symmetric:0.4"},
    "cifar10 asymmetric 40%": {"data": {"name": "cifar10"}, "noise": "cifar10_asymmetric:0.4"},
}
HEAD: dict[str, Any] = {
    "model": {"name": "mlp", "arguments": {"hidden": 512, "norm": "batch"}},
    "optimizer": {"name": "nesterov", "lr": 0.05},
    "schedule": {"name": "cosine"},
    "machine": {"threads": 1},
}
AUDIT: dict[str, Any] = {"name": "imae_capped", "arguments": ARGUMENTS}  # as `imae audit` trains
SCRATCH_ROWS = 5000
PHOTOS = {"photos symmetric 30%": ["--set", "noise=symmetric:0.3"], "photos as they are": []}
COMMAND = (
    *("rows", "true rate", "rate", "low", "high", "flagged", "precision", "recall", "f1", "ap"),
    *("flagged at 0.9", "wrong at 0.9", "fit no class", "seconds", "of the processor"),
)
PRECISION = 0.9
REVIEWED = 1000
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Row = dict[str, Any]


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("what", choices=("detect", "scratch", "round", "photos", "table", "size"))
    parser.add_argument("--out", type=Path, default=Path("results/audit"))
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--method", default=None, help="loss of the run; by default the audit's")
    parser.add_argument("--arguments", type=json.loads, default={}, help="its options, as JSON")
    parser.add_argument("--runs", type=Path, help="folder to keep the runs in")
    detecting = [step for step in STEPS if step not in ("round", "photos")]
    parser.add_argument("--steps", nargs="*", default=detecting, choices=detecting)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--photos", type=Path, help="folder of photos for round and photos")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "size":
        wall, processor = size_seconds()
        print(f"{describe()}\na million rows of a hundred classes: {wall:.1f} s, of which the ")
        print(f"processor worked {processor:.1f} s (one thread)")
        return
    if arguments.what == "table":
        print(tables(arguments.out))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.what == "round":
        SETS["photos symmetric 30%"] = {
            "data": {"name": str(arguments.photos)},
            "noise": "symmetric:0.3",
            "train": {"epochs": 40, "batch_size": 64},
        }
        arguments.sets = ["cifar10n worst", *(["photos symmetric 30%"] if arguments.photos else [])]
    if arguments.what == "scratch":
        arguments.steps = [step for step in arguments.steps if step != "regression"]
        arguments.sets = [from_scratch(name) for name in arguments.sets]
    if arguments.what == "photos":
        arguments.sets = list(PHOTOS)
    if arguments.what in ("round", "photos"):
        arguments.steps = [arguments.what]
    for step in arguments.steps:
        for seed in arguments.seeds:
            for name in arguments.sets:
                path = arguments.out / f"{step}-{slug(name, seed)}.json"
                if not path.exists():
                    rows = STEPS[step](name, seed, arguments)
                    content = {"set": name, "seed": seed, "machine": describe(), "rows": rows}
                    path.write_text(json.dumps(content, indent=1) + "\n")
                print(path.name, *json.loads(path.read_text())["rows"], sep="\n", flush=True)


def slug(name: str, seed: int) -> str:
    return f"{name.replace(' ', '-').replace('%', '')}-seed{seed}"


def from_scratch(name: str) -> str:
    """Adds a set whose runs train a ResNet on a sample of its images; returns its name."""
    is_large = SETS[name]["data"]["name"].startswith("cifar100")
    SETS[f"{name} from scratch"] = merged(
        CIFAR100 if is_large else CIFAR10,
        {"model": {"name": "resnet44" if is_large else "resnet20"}, "machine": {"threads": 1}},
        short(SCRATCH_ROWS),
        SETS[name],
    )
    return f"{name} from scratch"


def loss(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.method is None:
        return {"method": AUDIT}
    return {"method": {"name": arguments.method, "arguments": arguments.arguments}}


def settings(name: str, seed: int, folder: str, epochs: int, **changes: Any) -> dict[str, Any]:
    content = {**HEAD, **SETS[name], "seed": seed, "out": folder, **changes}
    data: dict[str, Any] = {"hold_out": 0.1, "own_validation": False}
    if content["model"] == HEAD["model"]:
        data["features"] = "efficientnet_lite0"
    content["data"] = {**SETS[name]["data"], **data, **changes.get("data", {})}
    budget = SETS[name].get("train", {"epochs": epochs, "batch_size": 128})
    content["train"] = {**budget, "measure_train": False}
    return content


def trained(name: str, seed: int, folder: str, epochs: int, **changes: Any) -> Run:
    return train(build_config(settings(name, seed, folder, epochs, **changes)))


def by_imae(name: str, seed: int, arguments: argparse.Namespace) -> list[Row]:
    return by_run(name, seed, "imae", loss(arguments), arguments)


def by_cce(name: str, seed: int, arguments: argparse.Namespace) -> list[Row]:
    return by_run(name, seed, "cce", {"method": {"name": "cce"}}, arguments)


def by_run(
    name: str, seed: int, title: str, method: dict[str, Any], arguments: argparse.Namespace
) -> list[Row]:
    with contextlib.ExitStack() as stack:
        folder = arguments.runs or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path = folder / f"{title}-{slug(name, seed)}"
        if RunFolder(path).exists():
            run = resume(path)
        else:
            run = trained(name, seed, str(path), arguments.epochs, **method)
        assert run.result is not None
        return judged(title, run, run.result["final"]["seconds"])


def by_folds(name: str, seed: int, arguments: argparse.Namespace, *, cost: int = 1) -> list[Row]:
    """3 folds train on two thirds of the rows each: with half the epochs they cost one run."""
    whole = all_rows(name, seed)

    def fit(part: Split) -> torch.nn.Module:
        return by_cross_entropy(part, settings(name, seed, "unused", arguments.epochs), cost)

    began = time.perf_counter()
    probabilities = folded(whole, 3, fit)
    title = f"cleanlab, 3 folds, {cost} x the cost"
    return [by_cleanlab(title, whole, probabilities, time.perf_counter() - began)]


def by_regression(name: str, seed: int, _: argparse.Namespace) -> list[Row]:
    whole = all_rows(name, seed)
    began = time.perf_counter()
    probabilities = folded(whole, 5, logistic_regression)
    title = "cleanlab, 5-fold logistic regression"
    return [by_cleanlab(title, whole, probabilities, time.perf_counter() - began)]


def judged(title: str, run: Run, seconds: float) -> list[Row]:
    """Everything that needs only this run."""
    began = time.perf_counter()
    found = audit(run.folder)
    spent = seconds + time.perf_counter() - began
    wrong = found.given != found.clean
    row = measured(f"{title}: audit", wrong, found.suspicion, found.is_flagged, spent)
    row |= {"rate": found.noise_rate, "low": found.noise_rate_low, "high": found.noise_rate_high}
    sure = found.order()[: flag_count(found.suspicion, found.wrong_probability, 0, PRECISION)]
    row |= {"flagged at 0.9": len(sure), "wrong at 0.9": mean(wrong[sure])}
    given, clean, probabilities = predicted(run)
    contradicted = probabilities.argmax(1) != given
    disbelief = score_rows(found, run, mean_disbelief)
    margin = score_rows(found, run, lambda epochs: mean_negative_margin(epochs, clip=math.inf))
    return [
        row,
        measured(f"{title}: mean disbelief", wrong, disbelief, None, seconds),
        measured(f"{title}: raw margin (AUM)", wrong, margin, None, seconds),
        measured(
            f"{title}: argmax rule",
            given != clean,
            contradicted.astype(float),
            contradicted,
            seconds,
        ),
        cleanlab(f"{title}: cleanlab, same run", given, clean, probabilities, seconds),
    ]


def predicted(run: Run) -> tuple[Ints, Ints, Floats]:
    """Given labels, true labels and probabilities of all rows, trained on and held out."""
    prepared = prepare(run.config)
    assert prepared.validation is not None
    network = run.load_model("best").eval()
    found = []
    for part in (prepared.train, prepared.validation):
        assert part.clean_labels is not None
        batches = np.array_split(np.arange(len(part)), math.ceil(len(part) / 1000))
        with torch.inference_mode():
            logits = [network(part.inputs.batch(rows, generator=None)) for rows in batches]
        found.append((part.labels, part.clean_labels, torch.cat(logits).double().softmax(1)))
    given, clean, probabilities = (np.concatenate(each) for each in zip(*found, strict=True))
    return given, clean, probabilities


def score_rows(
    found: Audit, run: Run, score: Callable[[Iterator[EpochDynamics]], Floats]
) -> Floats:
    """A score of every row in the order of the audit."""
    folder: RunFolder = run.folder
    labels, held = folder.labels(), folder.held_labels()
    assert held is not None
    numbers = folder.epochs()
    trained_rows = score(folder.dynamics(number) for number in numbers)
    held_rows = score(folder.held_dynamics(number) for number in numbers)
    values = dict(zip(labels.row_ids.tolist(), trained_rows, strict=True))
    values |= dict(zip(held.row_ids.tolist(), held_rows, strict=True))
    return np.array([values[row_id] for row_id in found.row_ids.tolist()])


def all_rows(name: str, seed: int) -> Split:
    """The rows that are trained on and held out."""
    prepared = prepare(build_config(settings(name, seed, "unused", 1)))
    assert prepared.validation is not None
    parts = (prepared.train, prepared.validation)
    clean = [part.clean_labels for part in parts if part.clean_labels is not None]
    inputs = parts[0].inputs
    values = "pixels" if isinstance(inputs, ArrayImages) else "values"
    joined = np.concatenate([getattr(part.inputs, values) for part in parts])
    return Split(
        replace(inputs, **{values: joined}),  # type: ignore[type-var]
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.row_ids for part in parts]),
        parts[0].class_names,
        np.concatenate(clean),
    )


Model = Callable[[Split], Callable[[torch.Tensor], torch.Tensor]]


def folded(whole: Split, number: int, fit: Model) -> Floats:
    """Probabilities of every row by a model that was not trained on it."""
    from sklearn.model_selection import StratifiedKFold

    probabilities = np.zeros((len(whole), whole.num_classes))
    folds = StratifiedKFold(number, shuffle=True, random_state=0)
    for inside, outside in folds.split(whole.labels, whole.labels):
        model = fit(whole.take(inside))
        with torch.inference_mode():
            logits = model(whole.inputs.batch(outside, generator=None))
        probabilities[outside] = logits.double().softmax(1).numpy()
    return probabilities


def by_cross_entropy(part: Split, content: dict[str, Any], cost: int) -> torch.nn.Module:
    """The network of a run, trained on a fold for half its epochs times the cost."""
    with tempfile.TemporaryDirectory() as folder:
        content |= {
            "method": {"name": "cce"},
            "noise": None,  # it is in the labels
            "data": {"hold_out": 0, "augment": content["data"].get("augment", True)},
            "train": {**content["train"], "epochs": cost * content["train"]["epochs"] // 2},
            "out": f"{folder}/run",
        }
        rows = replace(part, clean_labels=None)
        return train(content, data=Data("fold", rows)).load_model().eval()


def logistic_regression(part: Split) -> Callable[[torch.Tensor], torch.Tensor]:
    """Multinomial logistic regression with scikit-learn's penalty (C = 1), by L-BFGS."""
    inputs = part.inputs.batch(np.arange(len(part)), generator=None)
    target = torch.from_numpy(part.labels)
    layer = torch.nn.Linear(inputs.shape[1], part.num_classes)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimizer = torch.optim.LBFGS(
        layer.parameters(), max_iter=100, line_search_fn="strong_wolfe", history_size=10
    )

    def closure() -> float:
        optimizer.zero_grad()
        penalty = layer.weight.square().sum() / (2 * len(part))
        value = torch.nn.functional.cross_entropy(layer(inputs), target) + penalty
        value.backward()
        return float(value)

    optimizer.step(closure)
    return layer


def by_cleanlab(title: str, whole: Split, probabilities: Floats, seconds: float) -> Row:
    assert whole.clean_labels is not None
    return cleanlab(title, whole.labels, whole.clean_labels, probabilities, seconds)


def cleanlab(title: str, given: Ints, clean: Ints, probabilities: Floats, seconds: float) -> Row:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    flagged = find_label_issues(given, probabilities)
    suspicion = 1 - get_label_quality_scores(given, probabilities)
    row = measured(title, given != clean, suspicion, flagged, seconds)
    return row | {"rate": mean(flagged)}


def measured(
    title: str,
    wrong: NDArray[np.bool_],
    suspicion: Floats,
    flagged: NDArray[np.bool_] | None,
    seconds: float,
) -> Row:
    from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

    first = np.argsort(-suspicion, kind="stable")[: int(wrong.sum())]
    return {
        "name": title,
        "ap": float(average_precision_score(wrong, suspicion)),
        "auroc": float(roc_auc_score(wrong, suspicion)),
        "f1 at the true count": mean(wrong[first]),
        "f1": None if flagged is None else float(f1_score(wrong, flagged)),
        "true rate": mean(wrong),
        "seconds": seconds,
    }


def mean(values: NDArray[np.bool_]) -> float | None:
    return float(values.mean()) if len(values) else None


def correction_round(name: str, seed: int, arguments: argparse.Namespace) -> list[Row]:
    """Test accuracy before and after labels are corrected, by suggestions and by a reviewer.

    Suggestions are accepted, most certain first, while their mean certainty is at least 0.9. A
    perfect reviewer gives the ``REVIEWED`` most suspect rows their true labels.
    """
    with tempfile.TemporaryDirectory() as folder:
        first = trained(name, seed, f"{folder}/first", arguments.epochs, **loss(arguments))
        found = audit(first.folder)
        assert found.clean is not None
        sure = np.argsort(-np.where(found.suggested == found.given, 0, found.suggested_probability))
        certainty = found.suggested_probability[sure]
        reached = np.cumsum(certainty) / np.arange(1, len(sure) + 1) >= PRECISION
        is_other = (found.suggested != found.given)[sure]
        accepted = sure[: int((reached & is_other).sum())]
        reviewed = found.order()[:REVIEWED]
        rows = [outcome("before", first, 0, 0.0)]
        for title, chosen, labels in (
            ("suggestions of estimated precision 0.9", accepted, found.suggested),
            (f"{REVIEWED} rows reviewed", reviewed, found.clean),
        ):
            corrected = found.given.copy()
            corrected[chosen] = labels[chosen]
            path = Path(folder) / f"{len(rows)}.csv"
            with path.open("w", newline="") as file:
                named = [found.class_names[label] for label in corrected]
                table = zip(found.row_ids.tolist(), named, strict=True)
                csv.writer(file).writerows([("row_id", "label"), *table])
            changes = {**loss(arguments), "data": {"labels": str(path)}, "noise": None}
            run = trained(name, seed, f"{folder}/{len(rows)}", arguments.epochs, **changes)
            right = mean((corrected == found.clean)[chosen])
            rows.append(outcome(title, run, len(chosen), right))
        return rows


def by_command(name: str, seed: int, arguments: argparse.Namespace) -> list[Row]:
    """`imae audit PHOTOS --features efficientnet_lite0`, with the seconds of the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", "from imae.cli.app import main; main()", "audit"]
        command += [str(arguments.photos), "--features", "efficientnet_lite0", *PHOTOS[name]]
        command += ["--seed", str(seed), "--set", "machine.threads=1", "--out", f"{folder}/run"]
        began, worked = time.perf_counter(), processor_seconds()
        subprocess.run(command, check=True)
        spent = {"seconds": time.perf_counter() - began, "of the processor": processor_seconds()}
        spent["of the processor"] -= worked
        found = Audit.load(RunFolder(Path(folder) / "run"))
    row: Row = {"name": "imae audit"}
    if found.clean is not None and PHOTOS[name]:
        wrong = found.given != found.clean
        row = measured("imae audit", wrong, found.suspicion, found.is_flagged, 0)
        sure = found.order()[: flag_count(found.suspicion, found.wrong_probability, 0, PRECISION)]
        row |= {"flagged at 0.9": len(sure), "wrong at 0.9": mean(wrong[sure])}
        row |= {"precision": mean(wrong[found.is_flagged]), "recall": mean(found.is_flagged[wrong])}
    row |= {"rate": found.noise_rate, "low": found.noise_rate_low, "high": found.noise_rate_high}
    row |= {"rows": len(found), "flagged": int(found.is_flagged.sum())}
    return [row | {"fit no class": int(found.fits_no_class.sum())} | spent]


def processor_seconds() -> float:
    """Processor seconds of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def outcome(title: str, run: Run, changed: int, right: float | None) -> Row:
    assert run.result is not None
    accuracy = run.result["final"]["test_accuracy"]
    return {"name": title, "rows": changed, "right": right, "test accuracy": accuracy}


def tables(folder: Path) -> str:
    """Means over seeds of everything in a folder, as Markdown."""
    cells: dict[str, dict[str, list[Row]]] = {}
    for path in sorted(folder.glob("*-seed*.json")):
        content = json.loads(path.read_text())
        for row in content["rows"]:
            cells.setdefault(content["set"], {}).setdefault(row["name"], []).append(row)
    lines = []
    for name, methods in cells.items():
        is_round = {key: rows for key, rows in methods.items() if "test accuracy" in rows[0]}
        is_command = {key: rows for key, rows in methods.items() if "flagged" in rows[0]}
        detected = {key: methods[key] for key in methods if key not in {*is_round, *is_command}}
        if detected:
            lines += ["", f"### {name}", "", header(detected), "|---" + "|---:" * 9 + "|"]
            ordered = sorted(detected.items(), key=lambda each: -average(each[1], "ap"))
            lines += [line(key, rows) for key, rows in ordered]
        if is_round:
            lines += ["", f"### The round on {name}", "", "| | rows | right | test accuracy |"]
            lines += ["|---|---:|---:|---:|"]
            for key, rows in is_round.items():
                numbers = [shown(rows, "right"), shown(rows, "test accuracy", 4)]
                count = round(average(rows, "rows"))
                lines.append(f"| {key} | {count} | {numbers[0]} | {numbers[1]} |")
        for rows in is_command.values():
            lines += ["", f"### `imae audit` on {name}", "", "| | |", "|---|---:|"]
            lines += [f"| {key} | {shown(rows, key)} |" for key in COMMAND if key in rows[0]]
    return "\n".join(lines).strip()


def header(methods: dict[str, list[Row]]) -> str:
    truth = average(next(iter(methods.values())), "true rate")
    return (
        "| | seeds | average precision | AUROC | F1 at the true count | F1 of the flagged | "
        f"estimated rate (truth {truth:.3f}) | flagged at 0.9 | wrong of these | seconds |"
    )


def line(name: str, rows: list[Row]) -> str:
    keys = ("ap", "auroc", "f1 at the true count", "f1", "rate")
    numbers = [shown(rows, key) for key in keys]
    numbers += [shown(rows, "flagged at 0.9", 0), shown(rows, "wrong at 0.9")]
    return f"| {name} | {len(rows)} | {' | '.join(numbers)} | {shown(rows, 'seconds', 0)} |"


def average(rows: list[Row], key: str) -> float:
    values = [row[key] for row in rows if row.get(key) is not None]
    return float(np.mean(values)) if values else math.nan


def shown(rows: list[Row], key: str, digits: int = 3) -> str:
    value = average(rows, key)
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def size_seconds() -> tuple[float, float]:
    """Seconds to audit a million rows by a hundred classes: wall time and processor time."""
    draws = np.random.Generator(np.random.PCG64(1))
    given = draws.integers(0, 100, 1_000_000)
    probabilities = draws.random((1_000_000, 100), dtype=np.float32)
    probabilities[np.arange(1_000_000), given] += 50 * (draws.random(1_000_000) < 0.8)
    probabilities /= probabilities.sum(1, keepdims=True)
    began, worked = time.perf_counter(), time.process_time()
    audit(probabilities, given=given)
    return time.perf_counter() - began, time.process_time() - worked


STEPS: dict[str, Callable[[str, int, argparse.Namespace], list[Row]]] = {
    "imae": by_imae,
    "cce": by_cce,
    "folds": by_folds,
    "regression": by_regression,
    "thrice": partial(by_folds, cost=3),
    "round": correction_round,
    "photos": by_command,
}


if __name__ == "__main__":
    main()
