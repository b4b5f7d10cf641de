"""Corrected labels with their audit trail, and the audit in the formats of other tools."""

import io
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae.audit.decisions import Decision, guard, write_csv
from imae.audit.result import Audit
from imae.errors import ArgumentError, check_choice, check_interval
from imae.records.files import whole_file

FORMATS = ("label-studio", "fiftyone", "mask")


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
        if not decision.is_open:
            old = int(audit.given[row])
            new = {"keep": old, "no_class": None}.get(decision.decision, decision.label)
            trail[row] = TrailRow(row, old, new, "person", _certainty(audit, row))
    if accept_above is not None:
        check_interval("accept_above", accept_above, low=0.0, high=1.0)
        is_sure = audit.is_flagged & (audit.suggested_probability >= accept_above)
        is_other = (audit.suggested != audit.given) & ~audit.fits_no_class
        for row in np.flatnonzero(is_sure & is_other).tolist():
            if row not in decisions:
                old, new = int(audit.given[row]), int(audit.suggested[row])
                trail[row] = TrailRow(row, old, new, "program", _certainty(audit, row))
    return [trail[row] for row in sorted(trail)]


def _certainty(audit: Audit, row: int) -> float:
    return float(audit.suggested_probability[row])


def corrected_labels(audit: Audit, trail: Sequence[TrailRow]) -> NDArray[np.int64]:
    """Class number of every row after the corrections, shape (N,); -1 for no class."""
    labels = audit.given.astype(np.int64)
    for each in trail:
        labels[each.row] = -1 if each.new is None else each.new
    return labels


def write_corrected(audit: Audit, trail: Sequence[TrailRow], out: Path) -> Path:
    """Writes the corrected labels, and the audit trail beside them.

    The labels are for ``imae train --labels``: row ids and class names as they are. A row that
    belongs to no class has no label and a word in the column ``removed``; training leaves it out.

    Args:
        audit: The audit.
        trail: From ``correct``.
        out: File for the labels, ``.csv``; the trail gets the ending ``.trail.csv``.

    Returns:
        The file of the trail.

    Raises:
        ArgumentError: If ``out`` has another ending.
    """
    if out.suffix.lower() != ".csv":
        raise ArgumentError(f"--out must end in .csv, got {out}")
    rows = (
        (row_id, audit.class_names[number], "") if number >= 0 else (row_id, "", "no class")
        for row_id, number in zip(
            audit.row_ids.tolist(), corrected_labels(audit, trail).tolist(), strict=True
        )
    )
    write_csv(out, ("row_id", "label", "removed"), rows)
    trail_file = out.with_suffix(".trail.csv")
    write_csv(
        trail_file,
        ("row_id", "old", "new", "by", "certainty"),
        (
            (
                guard(str(audit.row_ids[each.row])),
                guard(audit.class_names[each.old]),
                "" if each.new is None else guard(audit.class_names[each.new]),
                each.by,
                f"{each.certainty:.4f}",
            )
            for each in trail
        ),
    )
    return trail_file


def export(audit: Audit, out: Path, *, format: str) -> None:
    """Writes the audit for another tool.

    Args:
        audit: The audit.
        out: The file: ``.json`` for Label Studio and FiftyOne; for the mask ``.npy``, or ``.csv``
            with the row ids.
        format: One of ``FORMATS``.

    Raises:
        ArgumentError: If the format is unknown, or the file has another ending.
    """
    check_choice("format", format, FORMATS)
    endings = (".npy", ".csv") if format == "mask" else (".json",)
    if out.suffix.lower() not in endings:
        raise ArgumentError(f"--out must end in {' or '.join(endings)} for {format}, got {out}")
    if format == "mask":
        _write_mask(audit, out)
        return
    content = label_studio_tasks(audit) if format == "label-studio" else fiftyone_labels(audit)
    with whole_file(out) as file:
        file.write(json.dumps(content, ensure_ascii=True, indent=1).encode() + b"\n")


def label_studio_tasks(audit: Audit) -> list[dict[str, object]]:
    """The flagged rows as tasks of Label Studio, most suspect first, with the suggestions.

    The project needs ``<Choices name="label" toName="item">`` on an object ``item`` that shows
    ``$item``, the row id.
    """
    tasks: list[dict[str, object]] = []
    for row in audit.order():
        if not audit.is_flagged[row]:
            continue
        choices = [] if audit.fits_no_class[row] else [audit.class_names[audit.suggested[row]]]
        result = {"from_name": "label", "to_name": "item", "type": "choices"}
        tasks.append(
            {
                "data": {
                    "item": str(audit.row_ids[row]),
                    "given": audit.class_names[audit.given[row]],
                    "wrong_probability": float(audit.wrong_probability[row]),
                },
                "predictions": [
                    {
                        "model_version": "imae audit",
                        "score": float(audit.suggested_probability[row]),
                        "result": [{**result, "value": {"choices": choices}}],
                    }
                ],
            }
        )
    return tasks


def fiftyone_labels(audit: Audit) -> dict[str, object]:
    """All rows as the ``labels.json`` of a FiftyOneImageClassificationDataset.

    A row is named as FiftyOne names a file, without its ending, and has the suggested label; the
    given label and the findings are attributes.
    """
    stems = [os.path.splitext(row_id)[0] for row_id in audit.row_ids.tolist()]
    counts = Counter(stems)
    labels = {}
    for row, row_id in enumerate(audit.row_ids.tolist()):
        name = stems[row] if counts[stems[row]] == 1 else row_id
        labels[name] = {
            "label": audit.class_names[audit.suggested[row]],
            "confidence": float(audit.suggested_probability[row]),
            "attributes": {
                "given": audit.class_names[audit.given[row]],
                "wrong_probability": float(audit.wrong_probability[row]),
                "is_flagged": bool(audit.is_flagged[row]),
                "fits_no_class": bool(audit.fits_no_class[row]),
            },
        }
    return {"classes": list(audit.class_names), "labels": labels}


def _write_mask(audit: Audit, out: Path) -> None:
    is_issue = ~audit.mask()
    if out.suffix.lower() == ".csv":
        names = ("row_id", "is_label_issue", "label_quality", "given_label", "predicted_label")
        rows = (
            (
                guard(str(audit.row_ids[row])),
                bool(is_issue[row]),
                f"{1 - audit.wrong_probability[row]:.6f}",
                guard(audit.class_names[audit.given[row]]),
                guard(audit.class_names[audit.suggested[row]]),
            )
            for row in range(len(audit))
        )
        write_csv(out, names, rows)
        return
    content = io.BytesIO()
    np.save(content, is_issue)
    with whole_file(out) as file:
        file.write(content.getvalue())
