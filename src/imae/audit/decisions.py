"""What people decided about suspect rows, read, checked and written."""

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from imae.audit.result import Audit
from imae.data.columns import listing
from imae.data.table import as_texts, open_columns
from imae.errors import DataError
from imae.records.files import whole_file

DECISIONS = ("accept", "keep", "relabel", "no_class", "skip", "flag")
COLUMNS = ("row_id", "given", "decision", "label", "by", "time", "audit")
_NEEDED = COLUMNS[:4]
_OPEN = ("skip", "flag")  # looked at, and left as it is
_GUARDED = re.compile(r"'*[=+\-@\t\r]")  # how a spreadsheet's formula begins, quoted or not


@dataclass(frozen=True)
class Decision:
    """What somebody decided about one row.

    Args:
        decision: One of ``DECISIONS``.
        label: Class number for accept and relabel, else None.
        by: Who decided.
        time: When, in ISO 8601.
    """

    decision: str
    label: int | None = None
    by: str = "person"
    time: str = ""

    @property
    def finds_wrong(self) -> bool:
        """Whether it says that the given label is wrong."""
        return self.decision in ("accept", "relabel", "no_class")

    @property
    def is_open(self) -> bool:
        """Whether it leaves the row as it is for now."""
        return self.decision in _OPEN


def identity(audit: Audit) -> str:
    """What tells the audited labels from others: a hash of row ids, given labels and classes.

    Another audit of the same labels has the same identity, so decisions outlive it.
    """
    digest = hashlib.sha256()
    for texts in (audit.row_ids.tolist(), audit.class_names):
        for text in texts:
            coded = text.encode("utf-8", "surrogatepass")
            digest.update(len(coded).to_bytes(8, "little") + coded)
        digest.update(b"\xff" * 8)
    digest.update(np.ascontiguousarray(audit.given, dtype="<i8").tobytes())
    return digest.hexdigest()[:32]


def read_decisions(audit: Audit, paths: Iterable[Path]) -> dict[int, Decision]:
    """Decisions from files of the review page, by position of the row.

    Of two decisions about one row, one that settles it counts more than skip or flag; two that
    settle it must agree.

    Args:
        audit: The audit that the decisions are about.
        paths: CSV files with the columns row_id, given, decision and label; by, time and audit
            may be missing.

    Raises:
        DataError: If a file cannot be read, is from a page of other labels, has an unknown row,
            decision or class, or two decisions about a row conflict.
    """
    places = {row_id: place for place, row_id in enumerate(audit.row_ids.tolist())}
    numbers = {name: number for number, name in enumerate(audit.class_names)}
    expected = identity(audit)
    found: dict[int, Decision] = {}
    for path in paths:
        for cells in _rows(path):
            row_id = unguard(cells["row_id"])
            where = f"{path}: row {row_id!r}"
            if cells["audit"] not in ("", expected):
                raise DataError(
                    f"{where}: was decided on the page of another run or of other labels; take "
                    "the page of this run"
                )
            if row_id not in places:
                raise DataError(f"{where}: is not a row of this run")
            place = places[row_id]
            given = audit.class_names[audit.given[place]]
            if unguard(cells["given"]) != given:
                raise DataError(
                    f"{where}: had the label {unguard(cells['given'])!r} when it was decided, "
                    f"this run has {given!r}; audit the labels that were decided about"
                )
            decision = _decision(where, cells, numbers)
            found[place] = _settled(where, found.get(place), decision)
    return found


def _rows(path: Path) -> Iterable[dict[str, str]]:
    if path.suffix.lower() not in (".csv", ".tsv"):
        raise DataError(f"{path}: decisions are in a .csv file, as the review page writes it")
    file = open_columns(path)
    missing = [name for name in _NEEDED if name not in file.names]
    if missing:
        raise DataError(
            f"{path}: line 1 has no column {missing[0]}; it is not a file of decisions (columns: "
            f"{listing(file.names)})"
        )
    names = [name for name in COLUMNS if name in file.names]
    values, _ = file.read(names, ())
    columns = [as_texts(values[name]) for name in names]
    for cells in zip(*columns, strict=True):
        yield dict.fromkeys(COLUMNS, "") | dict(zip(names, cells, strict=True))


def _decision(where: str, cells: Mapping[str, str], numbers: Mapping[str, int]) -> Decision:
    name = cells["decision"].strip()
    if name not in DECISIONS:
        raise DataError(f"{where}: decision {name!r} is none of {', '.join(DECISIONS)}")
    label = unguard(cells["label"])
    if name not in ("accept", "relabel"):
        return Decision(name, None, cells["by"], cells["time"])
    if label not in numbers:
        raise DataError(
            f"{where}: label {label!r} is none of the classes ({listing(tuple(numbers))})"
        )
    return Decision(name, numbers[label], cells["by"], cells["time"])


def _settled(where: str, before: Decision | None, now: Decision) -> Decision:
    """The one of two decisions about a row that counts."""
    if before is None or before.is_open:
        return now
    if now.is_open:
        return before
    is_same = before.label == now.label and before.finds_wrong == now.finds_wrong
    if not is_same:
        raise DataError(
            f"{where}: has two decisions that conflict, {_words(before)} and {_words(now)}; "
            "remove one of them"
        )
    return before


def _words(decision: Decision) -> str:
    return f"{decision.decision} at {decision.time}" if decision.time else decision.decision


def write_decisions(audit: Audit, decisions: Mapping[int, Decision], path: Path) -> None:
    """Writes decisions as the review page does, the whole file at once."""
    mark = identity(audit)
    rows = (
        (
            guard(str(audit.row_ids[row])),
            guard(audit.class_names[audit.given[row]]),
            each.decision,
            "" if each.label is None else guard(audit.class_names[each.label]),
            guard(each.by),
            each.time,
            mark,
        )
        for row, each in decisions.items()
    )
    write_csv(path, COLUMNS, rows)


def write_csv(path: Path, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes a CSV file as RFC 4180 describes it, whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(names)
    writer.writerows(rows)
    with whole_file(path) as file:
        file.write(text.getvalue().encode("utf-8"))


def guard(text: str) -> str:
    """The text with an apostrophe before what a spreadsheet would run as a formula.

    Examples:
        >>> guard("=1+1"), guard("cat"), unguard(guard("'=x"))
        ("'=1+1", 'cat', "'=x")
    """
    return f"'{text}" if _GUARDED.match(text) else text


def unguard(text: str) -> str:
    """The text before ``guard``."""
    return text[1:] if text.startswith("'") and _GUARDED.match(text) else text
