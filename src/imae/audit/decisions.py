"""What people decided about suspect rows, read, checked and written."""

import hashlib
import os
import re
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from imae.audit.label_tools import PROGRAM, Opinion, guard, read_opinions, unguard, write_csv
from imae.audit.result import Audit
from imae.data.arrays import read_npy
from imae.data.columns import listing
from imae.data.image_files import SUFFIXES
from imae.data.table import TABLE_SUFFIXES, as_texts
from imae.data.table_file import open_columns
from imae.errors import DataError

DECISIONS = ("accept", "keep", "relabel", "no_class", "skip", "flag")
COLUMNS = ("row_id", "given", "decision", "label", "by", "time", "audit")
_NEEDED = COLUMNS[:4]
_OPEN = ("skip", "flag")  # looked at, and left as it is


@dataclass(frozen=True)
class Decision:
    """What somebody decided about one row.

    Args:
        decision: One of ``DECISIONS``.
        label: Class number for accept and relabel, else None.
        by: Who decided; must be given. ``"program"`` if no person looked at the row: then it does
            not count in `imae.audit.correct.check`.
        time: When, in ISO 8601.
    """

    decision: str
    label: int | None = None
    by: str = field(kw_only=True)
    time: str = ""

    @property
    def finds_wrong(self) -> bool:
        """Whether it says that the given label is wrong."""
        return self.decision in ("accept", "relabel", "no_class")

    @property
    def is_by_program(self) -> bool:
        """Whether no person decided."""
        return self.by == PROGRAM

    @property
    def is_open(self) -> bool:
        """Whether it leaves the row as it is for now."""
        return self.decision in _OPEN


def decide(name: str, label: int | None, given: int, *, by: str, time: str) -> Decision:
    """Makes a decision; relabelling a row to its given label counts as keeping it.

    Args:
        name: One of ``DECISIONS``.
        label: Class number for accept and relabel, else None.
        given: The given label of the row.
        by: Who decided.
        time: When, in ISO 8601.

    Examples:
        >>> decide("relabel", 3, 3, by="person", time="").decision
        'keep'
    """
    if label == given:
        name, label = "keep", None
    return Decision(name, label, by=by, time=time)


def identity(audit: Audit) -> str:
    """A hash of row ids, given labels and classes, which identifies the audited labels.

    Another audit of the same labels has the same identity, so decisions stay valid for it.
    """
    digest = hashlib.sha256()
    for texts in (audit.row_ids.tolist(), audit.class_names):
        for text in texts:
            coded = text.encode("utf-8", "surrogatepass")
            digest.update(len(coded).to_bytes(8, "little") + coded)
        digest.update(b"\xff" * 8)
    digest.update(np.ascontiguousarray(audit.given, dtype="<i8").tobytes())
    return digest.hexdigest()[:32]


def download_name(mark: str) -> str:
    """The file in which a browser stores the decisions on an audit of this identity."""
    return f"decisions-{mark[:8]}.csv"


def read_decisions(audit: Audit, paths: Iterable[Path]) -> dict[int, Decision]:
    """Decisions from files of the review page or of label tools, by position of the row.

    If there are two decisions about one row, that of a person overrides that of a program, and one
    that settles it overrides skip or flag; two that settle it must agree.

    A file may say what a label is without saying that a person looked at the row. A label that is
    the given one is then no decision, one that is the audit's suggestion is the program's, and only
    another one is a person's.

    Args:
        audit: The audit that the decisions are about.
        paths: CSV files with the columns row_id, given, decision and label (by, time and audit
            may be missing), or files that `label_tools.read_opinions` reads: there a class is a
            decision for it, and a row that is not settled is marked for another look; or a mask of
            cleanlab, ``.npy``, in the order of the audit's rows; or corrected labels of
            ``imae audit apply`` with their trail beside them, which says who decided.

    Raises:
        DataError: If a file cannot be read, is from a page of other labels, has an unknown row,
            decision or class, or two decisions about a row conflict.
    """
    places = {row_id: place for place, row_id in enumerate(audit.row_ids.tolist())}
    numbers = {name: number for number, name in enumerate(audit.class_names)}
    expected = identity(audit)
    found: dict[int, Decision] = {}
    for path in paths:
        if not _has_decisions(path):
            _add_opinions(audit, path, _opinions(audit, path), numbers, found)
            continue
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
            decision = _decision(where, cells, numbers, int(audit.given[place]))
            found[place] = _settled(where, found.get(place), decision)
    return found


def _has_decisions(path: Path) -> bool:
    """Whether the file has the format of the review page."""
    return path.suffix.lower() in TABLE_SUFFIXES and "decision" in open_columns(path).names


def _opinions(audit: Audit, path: Path) -> list[Opinion]:
    """What a file that holds no decisions says about rows."""
    if path.suffix.lower() == ".npy":
        return _of_mask(audit, path)
    return _of_corrected(audit, path) if _is_corrected(path) else read_opinions(path)


def _is_corrected(path: Path) -> bool:
    """Whether the file holds corrected labels, as ``imae audit apply`` writes them."""
    if path.suffix.lower() not in TABLE_SUFFIXES:
        return False
    names = open_columns(path).names
    is_corrected = "removed" in names or "given" in names or trail_file(path).exists()
    return {"row_id", "label"} <= set(names) and is_corrected and "decision" not in names


def files_of(path: Path) -> list[Path]:
    """The files that are read for a file of decisions: also the trail beside corrected labels."""
    return [path, trail_file(path)] if path.exists() and _is_corrected(path) else [path]


def trail_file(labels: Path) -> Path:
    """The file of the trail beside a file of corrected labels.

    Examples:
        >>> trail_file(Path("labels.csv")).name
        'labels.trail.csv'
    """
    return labels.with_suffix(".trail.csv")


def _of_corrected(audit: Audit, path: Path) -> list[Opinion]:
    """What the trail beside corrected labels says: who decided about which row, and what.

    Raises:
        DataError: If there is no trail, or it does not account for a label.
    """
    trail = trail_file(path)
    if not trail.exists():
        raise DataError(
            f"{path}: has corrected labels, and does not say who decided on them; put {trail.name} "
            "beside it, which imae audit apply wrote with it (decisions of your own are a file "
            f"with the columns {', '.join(_NEEDED)})"
        )
    decided = {
        unguard(row_id): (unguard(new) or None, by)
        for row_id, new, by in _texts(trail, ("row_id", "new", "by"))
    }
    names = open_columns(path).names
    columns = ("row_id", "label", *(["removed"] if "removed" in names else []))
    given = dict(zip(audit.row_ids.tolist(), audit.given.tolist(), strict=True))
    classes = set(audit.class_names)
    opinions = []
    for row_id, written, *removed in _texts(path, columns):
        label = None if any(text.strip() for text in removed) else written
        if row_id not in given and label is None:  # an earlier round has removed it
            continue
        before = audit.class_names[given[row_id]] if row_id in given else None
        known, by = decided.get(row_id, (before, ""))
        is_of_run = row_id in given and (label is None or label in classes)  # else it is said
        if is_of_run and known != label:
            raise DataError(
                f"{path}: row {row_id!r}: {trail.name} does not say who decided on its label, "
                f"{'none' if label is None else repr(label)}; name the file of the decision itself"
            )
        opinions.append(Opinion(row_id, label, by=by))
    return opinions


def _texts(path: Path, names: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """The cells of these columns, by row."""
    file = open_columns(path)
    missing = [name for name in names if name not in file.names]
    if missing:
        raise DataError(
            f"{path}: line 1 has no column {missing[0]} (columns: {listing(file.names)})"
        )
    values, _ = file.read(list(names), ())
    return zip(*(as_texts(values[name]) for name in names), strict=True)


def _of_mask(audit: Audit, path: Path) -> list[Opinion]:
    """The rows that a boolean mask marks as an issue."""
    mask = read_npy(path)
    if mask.dtype != bool or mask.shape != (len(audit),):
        raise DataError(f"{path}: must hold {len(audit)} booleans, one for each row of this run")
    rows = np.flatnonzero(mask)
    return [Opinion(str(audit.row_ids[row]), None, False, PROGRAM) for row in rows]


def _add_opinions(
    audit: Audit,
    path: Path,
    opinions: list[Opinion],
    numbers: Mapping[str, int],
    found: dict[int, Decision],
) -> None:
    """Adds what a label tool says to the decisions found so far."""
    rows = find_rows((each.row for each in opinions), audit.row_ids.tolist())
    anonymous: dict[int, int | None] = {}  # labels of which no author is known, or no person
    for row, each in zip(rows, opinions, strict=True):
        where = f"{path}: row {each.row!r}"
        if row is None:
            raise DataError(f"{where}: is not a row of this run")
        # A class may itself be called as a spreadsheet's guarded formula is.
        label = each.label if each.label is None or each.label in numbers else unguard(each.label)
        if label is not None and label not in numbers:
            raise DataError(
                f"{where}: label {label!r} is none of the classes ({listing(tuple(numbers))})"
            )
        # What a tool holds of a row that was skipped is its prediction, not anybody's choice.
        number = None if label is None or not each.is_settled else numbers[label]
        kind = "flag" if not each.is_settled else "no_class" if number is None else "relabel"
        if number == audit.suggested[row]:
            kind = "accept"
        given = int(audit.given[row])
        by = each.by or (PROGRAM if number in (given, int(audit.suggested[row])) else "person")
        is_anonymous = each.by in ("", PROGRAM) and each.is_settled
        if is_anonymous and anonymous.setdefault(row, number) != number:
            raise DataError(f"{where}: has two labels in this file; remove one of them")
        if by == PROGRAM and number == given:  # as it was, and perhaps nobody has looked at it
            continue
        decision = decide(kind, number, given, by=by, time=each.time)
        found[row] = _settled(where, found.get(row), decision)


def _rows(path: Path) -> Iterable[dict[str, str]]:
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


def _decision(
    where: str, cells: Mapping[str, str], numbers: Mapping[str, int], given: int
) -> Decision:
    name = cells["decision"].strip()
    if name not in DECISIONS:
        raise DataError(f"{where}: decision {name!r} is none of {', '.join(DECISIONS)}")
    label, by, time = (unguard(cells[key]) for key in ("label", "by", "time"))
    if name not in ("accept", "relabel"):
        return Decision(name, by=by, time=time)
    if label not in numbers:
        raise DataError(
            f"{where}: label {label!r} is none of the classes ({listing(tuple(numbers))})"
        )
    return decide(name, numbers[label], given, by=by, time=time)


def _settled(where: str, before: Decision | None, now: Decision) -> Decision:
    """Which of two decisions about a row counts."""
    if before is None:
        return now
    if before.is_by_program != now.is_by_program:
        return now if before.is_by_program else before
    if before.is_open:
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
            guard(each.time),
            mark,
        )
        for row, each in decisions.items()
    )
    write_csv(path, COLUMNS, rows)


def find_rows(names: Iterable[str], row_ids: Sequence[str]) -> list[int | None]:
    """Position of the row that each name means; None if there is no such row.

    A name is a row id, a path or an address that ends in one, or, as FiftyOne names files, the row
    id of an image without its extension.

    Examples:
        >>> find_rows(["cat/1.jpg", "/files/?d=cat%2F1.jpg", "cat/1", "2.jpg"], ["cat/1.jpg"])
        [0, 0, 0, None]
    """
    places = {row_id: place for place, row_id in enumerate(row_ids)}
    stem_of = {row_id: os.path.splitext(row_id)[0] for row_id in row_ids}
    stems = Counter(stem_of.values())
    short = {
        stem: places[row_id]
        for row_id, stem in stem_of.items()
        if stems[stem] == 1 and row_id.lower().endswith(SUFFIXES)
    }

    def found(name: str) -> int | None:
        whole = urllib.parse.unquote(name)
        starts = [0, *(match.end() for match in re.finditer(r"[/\\=]", whole))]
        endings = [name, *(whole[start:] for start in starts)]
        candidates = (known.get(ending) for known in (places, short) for ending in endings)
        return next((place for place in candidates if place is not None), None)

    return [found(name) for name in names]
