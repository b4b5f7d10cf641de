"""The audit in the formats of label tools: Label Studio, FiftyOne and cleanlab's mask."""

import io
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np

from imae.audit.decisions import guard, write_csv
from imae.audit.result import Audit
from imae.errors import ArgumentError, check_choice
from imae.records.files import whole_file

FORMATS = ("label-studio", "fiftyone", "mask")


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
