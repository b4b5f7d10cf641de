"""What an audit found, in arrays, on disk and as a table. Numpy only."""

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.errors import DataError
from imae.records import RunFolder, explained_writing
from imae.records.files import (
    check_lengths,
    check_regular,
    parse_object,
    read_arrays,
    read_file,
    whole_file,
)

_KINDS = {
    "row_ids": "U",
    "given": "i",
    "suspicion": "f",
    "wrong_probability": "f",
    "suggested": "i",
    "suggested_probability": "f",
    "is_flagged": "b",
    "fits_no_class": "b",
    "group": "i",
    "clean": "i",
}
_RATES = ("noise_rate", "noise_rate_low", "noise_rate_high")


@dataclass(frozen=True, eq=False)
class Audit:
    """Which labels are suspect.

    Args:
        row_ids: Id of every row, shape (N,), strings.
        given: Given labels, shape (N,), integers in [0, C).
        class_names: Names of the C classes.
        suspicion: Shape (N,), higher is more suspect, on any scale.
        wrong_probability: Estimated probability that the given label is wrong, shape (N,).
        suggested: Most likely right class, shape (N,); the given one where that is believed.
        suggested_probability: Certainty of the suggestion, shape (N,), in [0, 1].
        is_flagged: Whether a person should look at the row, shape (N,).
        fits_no_class: Whether the row seems to belong to no class, shape (N,).
        group: Number of the group of duplicates the row belongs to, shape (N,); -1 for none.
        noise_rate: Estimated share of wrong labels, in [0, 1].
        noise_rate_low: Lower end of the range that it may have; not a confidence interval.
        noise_rate_high: Upper end of that range.
        transition: Estimated chance of each given label, for each right label, shape (C, C).
        clean: True labels where they are known, shape (N,); only for evaluation.

    Examples:
        >>> found = Audit(
        ...     row_ids=np.array(["a", "b"]), given=np.array([0, 1]), class_names=("cat", "dog"),
        ...     suspicion=np.array([0.1, 0.9]), wrong_probability=np.array([0.0, 0.8]),
        ...     suggested=np.array([0, 0]), suggested_probability=np.array([1.0, 0.7]),
        ...     is_flagged=np.array([False, True]), fits_no_class=np.zeros(2, bool),
        ...     group=np.array([-1, -1]), noise_rate=0.4, noise_rate_low=0.2, noise_rate_high=0.6,
        ...     transition=np.eye(2))
        >>> found.order().tolist(), found.mask().tolist(), found.rows()[0]["suggested"]
        ([1, 0], [True, False], 'cat')
        >>> found
        Audit(2 rows, 2 classes: about 40.0% of the labels are wrong (range 20.0% to 60.0%),
        1 row flagged)
    """

    row_ids: NDArray[np.str_]
    given: NDArray[np.int64]
    class_names: tuple[str, ...]
    suspicion: NDArray[np.float64]
    wrong_probability: NDArray[np.float64]
    suggested: NDArray[np.int64]
    suggested_probability: NDArray[np.float64]
    is_flagged: NDArray[np.bool_]
    fits_no_class: NDArray[np.bool_]
    group: NDArray[np.int64]
    noise_rate: float
    noise_rate_low: float
    noise_rate_high: float
    transition: NDArray[np.float64]
    clean: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.row_ids)

    def __repr__(self) -> str:
        rate, low, high = (f"{100 * getattr(self, name):.1f}%" for name in _RATES)
        number = int(self.is_flagged.sum())
        return (
            f"Audit({len(self)} rows, {len(self.class_names)} classes: about {rate} of the labels "
            f"are wrong (range {low} to {high}), {number} row{'s' * (number != 1)} flagged)"
        )

    def order(self) -> NDArray[np.int64]:
        """Positions of the rows, most suspect first; equal ones in the order of the data."""
        return np.argsort(-self.suspicion, kind="stable")

    def mask(self) -> NDArray[np.bool_]:
        """Whether the label of each row is believed, shape (N,)."""
        return ~self.is_flagged

    def rows(self) -> list[dict[str, object]]:
        """One dictionary of plain values for each row, most suspect first."""
        names = self.class_names
        return [
            {
                "row_id": str(self.row_ids[row]),
                "given": names[self.given[row]],
                "suggested": names[self.suggested[row]],
                "wrong_probability": float(self.wrong_probability[row]),
                "suggested_probability": float(self.suggested_probability[row]),
                "is_flagged": bool(self.is_flagged[row]),
                "fits_no_class": bool(self.fits_no_class[row]),
                "group": None if self.group[row] < 0 else int(self.group[row]),
            }
            for row in self.order()
        ]

    def save(self, run: RunFolder) -> None:
        """Writes ``audit/audit.npz`` and ``audit/audit.json`` into a run folder.

        Raises:
            DataError: If a file name is taken by something that is not a file.
            ImaeError: If they cannot be written.
        """
        folder = run.path / "audit"
        check_regular(folder)
        arrays = {name: getattr(self, name) for name in _KINDS if getattr(self, name) is not None}
        described = {name: getattr(self, name) for name in _RATES}
        described |= {
            "class_names": list(self.class_names),
            "transition": self.transition.tolist(),
            **_counts(self),
        }
        text = json.dumps(described, indent=2, allow_nan=False)
        with explained_writing(folder, run.path, command="audit"):
            with whole_file(folder / "audit.npz") as file:
                np.savez(file, **arrays)
            with whole_file(folder / "audit.json") as file:
                file.write(text.encode() + b"\n")

    @classmethod
    def load(cls, run: RunFolder) -> "Audit":
        """The audit that was saved in a run folder.

        Raises:
            DataError: If there is none, or it is damaged.
        """
        folder = run.path / "audit"
        check_regular(folder)
        described = _read_described(run)
        arrays = read_arrays(folder / "audit.npz", _KINDS, optional=("clean",))
        check_lengths(folder / "audit.npz", arrays)
        try:
            names = tuple(map(str, described["class_names"]))
            transition = np.array(described["transition"], dtype=np.float64)
            rates = {name: float(described[name]) for name in _RATES}
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{folder / 'audit.json'}: is damaged ({error})") from None
        labels = [arrays[name] for name in ("given", "suggested", "clean") if name in arrays]
        is_outside = any(((each < 0) | (each >= len(names))).any() for each in labels)
        if transition.shape != (len(names), len(names)) or is_outside:
            raise DataError(f"{folder}: labels, classes and transition do not match; audit again")
        content: dict[str, Any] = {**rates, **arrays}
        found = cls(class_names=names, transition=transition, **content)
        if [described.get(name) for name in _counts(found)] != list(_counts(found).values()):
            raise DataError(f"{folder}: audit.json and audit.npz are of two audits; audit again")
        _check_labels(found, run)
        return found


def _counts(audit: Audit) -> dict[str, int]:
    """Numbers by which the two files of an audit are known to be of the same one."""
    return {"num_rows": len(audit), "num_flagged": int(audit.is_flagged.sum())}


def _check_labels(audit: Audit, run: RunFolder) -> None:
    """Raises if the audit is not of the labels of the run, if the folder has any.

    Raises:
        DataError: If so.
    """
    if not (run.path / "labels.npz").exists():  # probabilities were audited
        return
    parts = [part for part in (run.labels(), run.held_labels()) if part is not None]
    # A row with a planted label is in both: the audit judged the label that it was given.
    known = {row: label for part in parts for row, label in _pairs(part.row_ids, part.given)}
    names = tuple(map(str, parts[0].class_names))
    other = [row for row, label in _pairs(audit.row_ids, audit.given) if known.get(row) != label]
    if other or names != audit.class_names:
        about = f"row {other[0]!r} differs" if other else "the classes differ"
        raise DataError(
            f"{run.path}: its audit is of other labels than those of the run ({about}); audit it "
            f"again: imae audit {shlex.quote(str(run.path))}"
        )


def _pairs(row_ids: NDArray[np.str_], labels: NDArray[np.integer]) -> Iterator[tuple[str, int]]:
    return zip(row_ids.tolist(), labels.tolist(), strict=True)


def _read_described(run: RunFolder) -> dict[str, Any]:
    path = run.path / "audit" / "audit.json"
    if not os.path.lexists(run.path):
        raise DataError(f"{run.path}: no such run")
    if not path.exists():
        command = f"imae audit {shlex.quote(str(run.path))}"
        raise DataError(f"{run.path}: has not been audited; start with: {command}")
    return parse_object(read_file(path), str(path))
