"""Accuracy on short texts with wrong labels, with all defaults.

    python benchmarks/texts.py > results/texts/accuracy.md
    python benchmarks/texts.py --choose    # the settings, by held-out given labels only
    python benchmarks/texts.py --quick     # the default loss only, two seeds
    python benchmarks/texts.py --quick --embeddings    # those of wordllama, not counts of words
    python benchmarks/texts.py --sklearn > results/texts/sklearn.md    # IMAEClassifier on TF-IDF

Sets: "made", 500 short texts on three topics, made of randomly drawn words; and real texts,
docstrings of 60 to 300 words of functions and classes in installed packages, where the class is the
package. Of the labels of the training rows 20% are replaced by another class; the test rows have
their right labels. For comparison: scikit-learn's TF-IDF with logistic regression on the same rows.
Cells are means over four seeds, with the lowest and the highest.
"""

import ast
import csv
import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
from machine import command_line

from imae.data import HashedText, hash_text
from imae.noise import symmetric
from imae.train import build_config, train

_TOPICS = {
    "sport": "match goal team player coach league season score win cup stadium referee striker",
    "money": "bank loan interest market shares profit invoice tax price budget fund credit stock",
    "food": "recipe oven butter sugar flour salt garlic onion bake sauce soup pepper bread cheese",
}
_COMMON = "the a of and to in was is for with on this that very it we they had from at by"
_SETS = {
    "docstrings of 3 packages": ("torch", "matplotlib", "networkx"),
    "docstrings of 5 packages": ("torch", "sklearn", "matplotlib", "networkx", "scipy"),
}
_METHODS = ("imae_capped", "imae_stable", "gce", "mae", "cce")
_CHOICES = ((False, 5.0), (True, 5.0), (True, 3.0), (True, 2.0))  # of log_counts and length
_SEEDS = range(4)


def made_texts() -> tuple[list[str], list[str]]:
    generator = np.random.Generator(np.random.PCG64(1))
    texts, labels = [], []
    for _ in range(900):
        topic = str(generator.choice(list(_TOPICS)))
        words = generator.choice(_TOPICS[topic].split(), generator.integers(2, 5)).tolist()
        words += generator.choice(_COMMON.split(), generator.integers(3, 7)).tolist()
        texts.append(" ".join(generator.permutation(words).tolist()))
        labels.append(topic)
    return texts, labels


def docstrings(packages: tuple[str, ...]) -> tuple[list[str], list[str]]:
    found: dict[str, list[str]] = {}
    for package in packages:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        seen = set()
        for path in sorted(Path(spec.origin).parent.rglob("*.py")):
            try:
                tree = ast.parse(path.read_text(errors="replace"))
            except SyntaxError:  # of a later version of Python
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    words = (ast.get_docstring(node) or "").split()[:300]
                    text = " ".join(words)
                    if len(words) >= 60:
                        seen.add(text.replace(package, ""))
        found[package] = sorted(seen)
    generator = np.random.Generator(np.random.PCG64(1))
    texts, labels = [], []
    for package, every in found.items():
        chosen = generator.permutation(len(every))[:600]
        texts += [every[row] for row in chosen]
        labels += [package] * len(chosen)
    return texts, labels


def write(path: Path, texts: list[str], labels: list[str], test: int) -> list[list[str]]:
    """The rows as a CSV file, one in five of the training labels replaced."""
    names = sorted(set(labels))
    order = np.random.Generator(np.random.PCG64(2)).permutation(len(texts))
    clean = np.array([names.index(labels[row]) for row in order])
    given = clean.copy()
    noisy = symmetric(clean[test:], rate=0.2, num_classes=len(names), seed=1)
    given[test:] = noisy.labels
    rows = [
        [texts[row], names[label], "test" if place < test else "train"]
        for place, (row, label) in enumerate(zip(order, given, strict=True))
    ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["text", "label", "split"], *rows])
    return rows


def logistic_regression(rows: list[list[str]]) -> float:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    parts = {part: [row for row in rows if row[2] == part] for part in ("train", "test")}
    texts, labels = ({k: [row[i] for row in v] for k, v in parts.items()} for i in (0, 1))
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
    return float(model.fit(texts["train"], labels["train"]).score(texts["test"], labels["test"]))


def topics(num_classes: int, num_texts: int) -> tuple[list[str], list[str]]:
    """Texts of 20 words of 3,000, frequent ones more often; a quarter are of the topic's 150."""
    generator = np.random.Generator(np.random.PCG64(num_classes))
    words = np.array([f"w{word}" for word in range(3000)])
    chance = 1 / np.arange(1, 3001)
    own = [generator.choice(3000, 150, replace=False) for _ in range(num_classes)]
    labels = generator.integers(0, num_classes, num_texts)
    texts = []
    for label in labels:
        number = generator.binomial(20, 0.25)
        common = generator.choice(3000, 20 - number, p=chance / chance.sum())
        texts.append(" ".join(words[[*generator.choice(own[label], number), *common]]))
    return texts, [str(label) for label in labels]


def compare_classifiers() -> None:
    """Test accuracy of `IMAEClassifier` and logistic regression on the same TF-IDF rows."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    from imae.integrations.sklearn import IMAEClassifier

    print("Test accuracy on TF-IDF rows, three fifths of the texts trained on, seeds 21 to 24:")
    print("labels as they are, and 20% of them wrong.\n")
    print("| texts | LogisticRegression | IMAEClassifier | with hidden layers |")
    print("|---|---|---|---|")
    sets = {"made": made_texts(), "two topics": topics(2, 600), "four topics": topics(4, 1500)}
    sets |= {name: docstrings(names) for name, names in _SETS.items()}
    for name, (texts, names) in sets.items():
        labels = np.unique(names, return_inverse=True)[1]
        found = []
        for seed in range(21, 25):
            order = np.random.Generator(np.random.PCG64(seed)).permutation(len(texts))
            train_rows, test_rows = np.split(order, [3 * len(texts) // 5])
            counter = TfidfVectorizer().fit([texts[row] for row in train_rows])
            rows, others = (
                counter.transform([texts[row] for row in part]) for part in (train_rows, test_rows)
            )
            for rate in (0.0, 0.2):
                number = int(labels.max()) + 1
                noisy = symmetric(labels[train_rows], rate=rate, num_classes=number, seed=seed)
                for model in (
                    LogisticRegression(max_iter=1000),
                    IMAEClassifier(random_state=seed),
                    IMAEClassifier(hidden_layer_sizes=100, random_state=seed),
                ):
                    found.append(model.fit(rows, noisy.labels).score(others, labels[test_rows]))
        mean = np.reshape(found, (4, 2, 3)).mean(0)
        cells = [f"{clean:.1%}, {noisy:.1%}" for clean, noisy in mean.T]
        print(f"| {name} |", " | ".join(cells), "|", flush=True)


def choose() -> None:
    """Accuracy on held-out given labels of the two real sets, by the preparation of texts."""
    print("| counts | length | " + " | ".join(_SETS) + " |\n|---|---|" + "---|" * len(_SETS))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.csv") for number in range(len(_SETS))]
        for path, packages in zip(paths, _SETS.values(), strict=True):
            write(path, *docstrings(packages), test=600)
        for log_counts, length in _CHOICES:

            def prepared(
                texts: Sequence[str], log_counts: bool = log_counts, length: float = length
            ) -> HashedText:
                return replace(hash_text(texts, log_counts=log_counts), length=length)

            with mock.patch("imae.data.table.hash_text", prepared):
                cells = [f"{held_out_accuracy(path, folder):.1%}" for path in paths]
            name = "logarithms" if log_counts else "as they are"
            print(f"| {name} | {length:g} |", " | ".join(cells), "|", flush=True)


def held_out_accuracy(path: Path, folder: str) -> float:
    found = []
    for seed in range(3):
        settings = {
            "data": {"name": str(path), "hold_out": 0.25},
            "train": {"measure_train": False},
            "out": tempfile.mkdtemp(dir=folder),
            "seed": seed,
        }
        result = train(build_config(settings)).result
        assert result is not None
        found.append(result["final"]["validation_accuracy"])
    return float(np.mean(found))


def main() -> None:
    parser = command_line(__doc__)
    for option in ("--choose", "--quick", "--embeddings", "--sklearn"):
        parser.add_argument(option, action="store_true")
    arguments = parser.parse_args()
    if arguments.choose:
        return choose()
    if arguments.sklearn:
        return compare_classifiers()
    features = "wordllama" if arguments.embeddings else None
    is_quick = arguments.quick
    methods, seeds = (_METHODS[:1], range(2)) if is_quick else (_METHODS, _SEEDS)
    print("| texts | TF-IDF and logistic regression |", *(f" {name} |" for name in methods), sep="")
    print("|---|---|" + "---|" * len(methods))
    sets = {"made": made_texts()} | {name: docstrings(names) for name, names in _SETS.items()}
    with tempfile.TemporaryDirectory() as folder:
        for name, (texts, labels) in sets.items():
            path = Path(folder, f"{name.replace(' ', '-')}.csv")
            rows = write(path, texts, labels, test=400 if name == "made" else 600)
            cells = [f"{logistic_regression(rows):.1%}"]
            for method in methods:
                final = []
                for seed in seeds:
                    settings = {
                        "data": {"name": str(path), "features": features},
                        "method": {"name": method},
                        "out": str(Path(folder, f"{path.stem}-{method}-{seed}")),
                        "seed": seed,
                    }
                    print(name, method, seed, file=sys.stderr)
                    result = train(build_config(settings)).result
                    assert result is not None
                    final.append(result["final"]["test_accuracy"])
                cells.append(f"{np.mean(final):.1%} ({min(final):.1%} to {max(final):.1%})")
            print(f"| {name} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
