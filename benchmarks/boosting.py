"""Boosted trees with wrong labels: robust objectives beside the built-in one.

    python benchmarks/boosting.py results/boosting [LIBRARY or TABLE ...]

Tables: digits, breast cancer and wine of scikit-learn, and the image segments of the UCI
repository, which the package river contains (``pip install --no-deps river``). 30% of the rows are
the test part and keep their labels; of the labels of the others 0, 20 or 40% are flipped to another
class. Both libraries have their default parameters and 100 rounds. The accuracy is that of the last
round; nothing is chosen by it. If libraries or tables are named, only these are measured.
``records.csv`` has a line for each model, so that an interrupted run can continue;
``accuracy.md`` is made from it.
"""

import csv
import importlib.util
import io
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import xgboost
from machine import command_line
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split

from imae.integrations.boosting import Objective
from imae.noise import symmetric

RATES = (0.0, 0.2, 0.4)
SEEDS = range(5)
ROUNDS = 100
LIBRARIES = ("LightGBM", "XGBoost")
LOSSES: dict[str, dict[str, Any] | None] = {
    "built-in": None,
    "CCE as a curve": {"curve": "cce"},
    "GCE": {"curve": "gce:q=0.7"},
    "IMAE, T = 8": {"curve": "imae", "T": 8.0},
    "IMAE, T = auto": {"curve": "imae", "T": "auto"},
}
COLUMNS = ("library", "table", "rate", "loss", "seed", "accuracy", "seconds")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def image_segments() -> tuple[Floats, Ints]:
    spec = importlib.util.find_spec("river")
    if spec is None or spec.origin is None:
        sys.exit("the table of image segments is in a package: pip install --no-deps river")
    archive = Path(spec.origin).parent / "datasets" / "segment.csv.zip"
    with zipfile.ZipFile(archive) as files:
        text = files.read(files.namelist()[0]).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    names = [name for name in rows[0] if name != "category"]
    numbers = np.array([[float(row[name]) for name in names] for row in rows])
    return numbers, np.unique([row["category"] for row in rows], return_inverse=True)[1]


TABLES: dict[str, Callable[[], Any]] = {
    "wine": lambda: load_wine(return_X_y=True),
    "breast cancer": lambda: load_breast_cancer(return_X_y=True),
    "image segments": image_segments,
    "digits": lambda: load_digits(return_X_y=True),
}


def accuracy(
    library: str, loss: str, train: tuple[Floats, Ints], test: tuple[Floats, Ints]
) -> float:
    options = LOSSES[loss]
    objective = None if options is None else Objective(**options)
    common = {"n_estimators": ROUNDS, "n_jobs": 1}
    chosen = {} if objective is None else {"objective": objective}
    if library == "LightGBM":
        model = lightgbm.LGBMClassifier(verbose=-1, random_state=0, **common, **chosen)
    else:
        model = xgboost.XGBClassifier(random_state=0, **common, **chosen)
    model.fit(*train)
    if objective is None:
        found = model.predict(test[0])
    else:
        found = objective.predict_proba(model, test[0]).argmax(1)
    return float((found == test[1]).mean())


def measure(folder: Path, only: set[str]) -> None:
    libraries = [name for name in LIBRARIES if name in only or not only & set(LIBRARIES)]
    tables = {name: load for name, load in TABLES.items() if name in only or not only & set(TABLES)}
    path = folder / "records.csv"
    done = {tuple(row[:5]) for row in csv.reader(path.open())} if path.exists() else set()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not done:
            writer.writerow(COLUMNS)
        for seed in SEEDS:
            for library in libraries:
                for table, load in tables.items():
                    rows, labels = load()
                    for rate in RATES:
                        cell = [library, table, str(rate)]
                        if all((*cell, loss, str(seed)) in done for loss in LOSSES):
                            continue
                        parts = train_test_split(
                            rows, labels, test_size=0.3, stratify=labels, random_state=seed
                        )
                        given = symmetric(
                            parts[2], rate=rate, num_classes=int(labels.max()) + 1, seed=seed
                        ).labels
                        for loss in LOSSES:
                            if (*cell, loss, str(seed)) in done:
                                continue
                            start = time.process_time()
                            value = accuracy(library, loss, (parts[0], given), (parts[1], parts[3]))
                            seconds = time.process_time() - start
                            numbers = (f"{value:.4f}", f"{seconds:.2f}")
                            writer.writerow([*cell, loss, seed, *numbers])
                            file.flush()


def table(folder: Path) -> str:
    with (folder / "records.csv").open() as file:
        records = list(csv.DictReader(file))
    lines = [
        "Test accuracy after 100 rounds, mean and standard deviation over "
        f"{len({each['seed'] for each in records})} seeds, by `python benchmarks/boosting.py`.",
        "",
    ]
    for library in LIBRARIES:
        measured = {each["table"] for each in records if each["library"] == library}
        tables = [name for name in TABLES if name in measured]
        if not tables:
            continue
        heads = [f"{name}, {float(rate):.0%}" for name in tables for rate in RATES]
        lines += [f"| {library} | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
        for loss in LOSSES:
            cells = []
            for name in tables:
                for rate in RATES:
                    key = (library, name, str(rate), loss)
                    found = [
                        100 * float(each["accuracy"])
                        for each in records
                        if tuple(each[column] for column in COLUMNS[:4]) == key
                    ]
                    spread = np.std(found, ddof=1) if len(found) > 1 else 0.0
                    cells.append(f"{np.mean(found):.1f} ± {spread:.1f}" if found else "-")
            lines.append(f"| {loss} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("only", nargs="*", metavar="LIBRARY or TABLE")
    arguments = parser.parse_args()
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    measure(folder, set(arguments.only))
    (folder / "accuracy.md").write_text(table(folder))


if __name__ == "__main__":
    main()
