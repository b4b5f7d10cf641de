"""Decisions applied: corrected labels with a trail, and a bound on the precision."""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae._draws import DEFAULT_SEED, numpy_generator
from imae.audit.decisions import Decision, identity, trail_file
from imae.audit.label_tools import PROGRAM, guard, table_bytes
from imae.audit.result import Audit
from imae.errors import ArgumentError, DataError, check_integer, check_interval, import_extra
from imae.records.files import parse_object, read_file, whole_file

_NO_CLASS = "no class"


@dataclass(frozen=True)
class TrailRow:
    """One row of the audit trail.

    Args:
        row: Position of the row.
        old: Class number before.
        new: Class number after, or None for a row that belongs to no class and is removed.
        by: "person" or "program".
        certainty: The audit's certainty of its own suggestion.
    """

    row: int
    old: int
    new: int | None
    by: str
    certainty: float


def correct(
    audit: Audit, decisions: Mapping[int, Decision], *, accept_above: float | None = None
) -> list[TrailRow]:
    """Every row that a person settled or the program relabels, in the order of the rows.

    A decision of the program is never more than a new label: only a person confirms a label or
    removes a row.

    Args:
        audit: The audit.
        decisions: By position of the row.
        accept_above: The program accepts the suggestion for flagged rows that nobody has looked
            at where its certainty is at least this; by default it accepts none.

    Raises:
        ArgumentError: If ``accept_above`` is outside [0, 1].
    """
    trail = {}
    for row, decision in decisions.items():
        if decision.is_open:
            continue
        old = int(audit.given[row])
        new = {"keep": old, "no_class": None}.get(decision.decision, decision.label)
        by = PROGRAM if decision.is_by_program else "person"
        if by == "person" or new not in (old, None):
            trail[row] = TrailRow(row, old, new, by, _certainty(audit, row))
    if accept_above is not None:
        check_interval("accept_above", accept_above, low=0.0, high=1.0)
        for row in left_to_program(audit, decisions).tolist():
            if audit.suggested_probability[row] >= accept_above:
                old, new = int(audit.given[row]), int(audit.suggested[row])
                trail[row] = TrailRow(row, old, new, PROGRAM, _certainty(audit, row))
    return [trail[row] for row in sorted(trail)]


def left_to_program(audit: Audit, decisions: Mapping[int, Decision]) -> NDArray[np.int64]:
    """Positions of the flagged rows with another class suggested that nobody has looked at.

    A row that a program marked for another look, as a mask does, has not been looked at.

    Args:
        audit: The audit.
        decisions: By position of the row.
    """
    is_left = audit.is_flagged & (audit.suggested != audit.given) & ~audit.fits_no_class
    for row, each in decisions.items():
        is_left[row] &= each.is_by_program and each.is_open
    return np.flatnonzero(is_left)


def _certainty(audit: Audit, row: int) -> float:
    return float(audit.suggested_probability[row])


def corrected_labels(audit: Audit, trail: Sequence[TrailRow]) -> NDArray[np.int64]:
    """Class number of every row after the corrections, shape (N,); -1 for no class."""
    labels = audit.given.astype(np.int64)
    for each in trail:
        labels[each.row] = -1 if each.new is None else each.new
    return labels


def write_corrected(
    audit: Audit,
    trail: Sequence[TrailRow],
    out: Path,
    *,
    in_data: Mapping[str, str] | None = None,
    removed: Iterable[str] = (),
    others: Iterable[tuple[str, str, str]] = (),
) -> Path:
    """Writes the corrected labels, and the audit trail beside them.

    The labels are for ``imae train --labels``: row ids and class names as they are. A row that
    belongs to no class has no label and a word in the column ``removed``; training leaves it out.

    Args:
        audit: The audit.
        trail: From ``correct``.
        out: File for the labels, ``.csv`` or ``.parquet``; the trail ends in ``.trail.csv``.
        in_data: Label that each row has in the data, by its id. It is written beside the corrected
            one, and training refuses the file if the labels of the data have changed since.
        removed: Ids of rows that an earlier round removed; they stay removed.
        others: Rows of the data that were not audited: id, label, and a word if they are removed.

    Returns:
        The file of the trail.

    Raises:
        ArgumentError: If ``out`` has another extension.
    """
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise ArgumentError(f"--out must end in .csv or .parquet, got {out}")
    rows = [
        (row_id, audit.class_names[number], "") if number >= 0 else (row_id, "", _NO_CLASS)
        for row_id, number in zip(
            audit.row_ids.tolist(), corrected_labels(audit, trail).tolist(), strict=True
        )
    ]
    rows += [(row_id, "", _NO_CLASS) for row_id in removed]
    rows += others
    table: list[tuple[str, ...]] = [("row_id", "label", "removed"), *rows]
    if in_data is not None:
        table = [(*table[0], "given"), *((*row, in_data[row[0]]) for row in rows)]
    changes = (
        (
            guard(str(audit.row_ids[each.row])),
            guard(audit.class_names[each.old]),
            "" if each.new is None else guard(audit.class_names[each.new]),
            each.by,
            f"{each.certainty:.4f}",
        )
        for each in trail
    )
    path = trail_file(out)
    # Both or neither: labels without a trail look like those that somebody wrote by hand.
    with whole_file(out) as labels, whole_file(path) as record:
        record.write(table_bytes(path, ("row_id", "old", "new", "by", "certainty"), changes))
        labels.write(table_bytes(out, table[0], table[1:]))
        labels.flush()
    return path


@dataclass(frozen=True)
class Sample:
    """The random sample of flagged rows that a page of the check shows.

    Args:
        rows: Positions of the rows.
        confidence: Confidence of the bound.
    """

    rows: NDArray[np.int64]
    confidence: float = 0.95


@dataclass(frozen=True)
class Checked:
    """What a person found in a random sample of the flagged rows.

    Args:
        num_flagged: Flagged rows that the sample was drawn from.
        num_sampled: Rows in the sample.
        num_judged: Rows of the sample that a person has decided about.
        num_wrong: Rows of the sample whose given label the person found wrong.
        confidence: Confidence of the bound, in (0, 1).
        seed: Seed of the sample.
        flagged: Identifies the flagged rows, from ``flagged_digest``.

    Examples:
        >>> Checked(500, 100, 100, 96, 0.95, 0).sentence()
        'A person found 96 of 100 randomly drawn flagged rows wrong: with 95% confidence at least
        91.0% of all 500 flagged labels are wrong.'
    """

    num_flagged: int
    num_sampled: int
    num_judged: int
    num_wrong: int
    confidence: float
    seed: int
    flagged: str = ""

    @property
    def is_census(self) -> bool:
        """Whether the sample contains all flagged rows, so that nothing is left to chance."""
        return self.num_sampled == self.num_flagged

    @property
    def precision_at_least(self) -> float:
        """Lower bound on the share of flagged rows whose label is wrong."""
        if self.is_census:
            return self.num_wrong / self.num_flagged
        return lower_bound(self.num_wrong, self.num_sampled, confidence=self.confidence)

    @property
    def is_complete(self) -> bool:
        """Whether the whole sample was judged."""
        return self.num_judged == self.num_sampled

    def is_about(self, audit: Audit) -> bool:
        """Whether the sample was drawn from the rows that this audit flags."""
        return self.flagged == flagged_digest(audit)

    def sentence(self) -> str:
        """The finding in one sentence."""
        if not self.is_complete:
            return (
                f"A person has judged {self.num_judged} of {self.num_sampled} randomly drawn "
                "flagged rows; the bound needs all of them."
            )
        if self.is_census:
            return (
                f"A person found {self.num_wrong} of all {self.num_flagged} flagged rows wrong: "
                f"{100 * self.precision_at_least:.1f}% of them."
            )
        bound = math.floor(1000 * self.precision_at_least) / 10  # never rounded up
        return (
            f"A person found {self.num_wrong} of {self.num_sampled} randomly drawn flagged rows "
            f"wrong: with {100 * self.confidence:g}% confidence at least {bound:.1f}% of all "
            f"{self.num_flagged} flagged labels are wrong."
        )


def lower_bound(num_wrong: int, num_rows: int, *, confidence: float = 0.95) -> float:
    """The exact one-sided lower bound of Clopper and Pearson on a probability.

    It is the p at which ``num_wrong`` or more of ``num_rows`` have probability 1 - confidence;
    for a sample drawn without replacement it is on the safe side.

    Args:
        num_wrong: Rows that have the property.
        num_rows: Rows looked at, at least 1.
        confidence: In (0, 1).

    Raises:
        ArgumentError: If a number is out of range.

    Examples:
        >>> round(lower_bound(20, 20), 6), lower_bound(0, 20)
        (0.860892, 0.0)

    Reference:
        Clopper and Pearson, "The Use of Confidence or Fiducial Limits Illustrated in the Case of
        the Binomial", Biometrika 1934.
    """
    check_integer("num_rows", num_rows, low=1)
    check_integer("num_wrong", num_wrong, low=0)
    check_interval("confidence", confidence, low=0.0, high=1.0, open_low=True, open_high=True)
    if num_wrong > num_rows:
        raise ArgumentError(f"num_wrong must be at most num_rows, got {num_wrong} of {num_rows}")
    if num_wrong == 0:
        return 0.0
    special = import_extra("scipy.special", extra="data")
    return float(special.betaincinv(num_wrong, num_rows - num_wrong + 1, 1 - confidence))


def flagged_digest(audit: Audit) -> str:
    """A hash that identifies the flagged rows and their labels: another audit may flag others."""
    digest = hashlib.sha256(identity(audit).encode())
    digest.update(np.packbits(audit.is_flagged).tobytes())
    return digest.hexdigest()[:32]


def draw_sample(audit: Audit, num_rows: int, *, seed: int = DEFAULT_SEED) -> NDArray[np.int64]:
    """Positions of flagged rows, drawn at random without replacement, in random order.

    Args:
        audit: The audit.
        num_rows: Size of the sample; all flagged rows if there are fewer.
        seed: Seed of the draw.

    Raises:
        ArgumentError: If ``num_rows`` is below 1 or the seed below 0.
        DataError: If no row is flagged.
    """
    check_integer("rows", num_rows, low=1)
    check_integer("seed", seed, low=0)
    flagged = np.flatnonzero(audit.is_flagged)
    if len(flagged) == 0:
        raise DataError("no row is flagged, so there is nothing to check")
    return numpy_generator(seed, "audit check").permutation(flagged)[:num_rows]


def check(
    audit: Audit,
    decisions: Mapping[int, Decision],
    *,
    num_rows: int = 100,
    confidence: float = 0.95,
    seed: int = DEFAULT_SEED,
) -> Checked:
    """What the decisions say about the seeded sample of the flagged rows.

    A decision for another label or no class means that the given label is wrong; keep, or
    the given label itself, means that it is right. A row that a person skipped or marked for
    another look counts as judged and not wrong, so the bound holds in any case. A decision of the
    program does not count: nobody has judged the row.

    Args:
        audit: The audit.
        decisions: By position of the row, from ``read_decisions``.
        num_rows: Size of the sample.
        confidence: Confidence of the bound.
        seed: Seed of the sample.
    """
    check_interval("confidence", confidence, low=0.0, high=1.0, open_low=True, open_high=True)
    sample = draw_sample(audit, num_rows, seed=seed)
    judged = [
        (row, decisions[row])
        for row in sample.tolist()
        if row in decisions and not decisions[row].is_by_program
    ]
    return Checked(
        num_flagged=int(audit.is_flagged.sum()),
        num_sampled=len(sample),
        num_judged=len(judged),
        num_wrong=sum(
            each.finds_wrong and each.label != int(audit.given[row]) for row, each in judged
        ),
        confidence=confidence,
        seed=seed,
        flagged=flagged_digest(audit),
    )


def save_check(checked: Checked, path: str | os.PathLike[str]) -> None:
    """Writes what was found as JSON."""
    content = {**asdict(checked), "precision_at_least": checked.precision_at_least}
    with whole_file(path) as file:
        file.write(json.dumps(content, indent=2).encode() + b"\n")


def read_check(path: Path) -> Checked | None:
    """The last check that was saved, of the rows flagged at that time; see ``Checked.is_about``.

    Raises:
        DataError: If the file is damaged.
    """
    if not path.exists():
        return None
    content = parse_object(read_file(path), str(path))
    content.pop("precision_at_least", None)
    try:
        checked = Checked(**content)
        checked.sentence()
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: is damaged ({error}); remove it and check again") from None
    return checked
