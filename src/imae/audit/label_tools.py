"""Files of label tools: Label Studio, FiftyOne, cleanlab's mask, CSV and Parquet, both ways."""

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from imae.audit.result import Audit
from imae.data.columns import listing
from imae.data.table import TABLE_SUFFIXES, as_texts
from imae.data.table_file import open_columns
from imae.errors import ArgumentError, DataError, check_choice, import_extra
from imae.records.files import read_file, whole_file

FORMATS = ("label-studio", "fiftyone", "mask")
PROGRAM = "program"
"""Author of what no person decided."""
_TRUE, _FALSE = ("true", "1", "1.0"), ("false", "0", "0.0", "")  # in a mask
_REVIEWED = "reviewed"  # tag in FiftyOne of what a person looked at and left as it was
_GUARDED = re.compile(r"'*[=+\-@\t\r]")  # how a spreadsheet's formula begins, quoted or not


@dataclass(frozen=True)
class Opinion:
    """What a label tool says about one row.

    Args:
        row: What it calls the row: its id, or a path or address that ends in it.
        label: Class name; None if the row belongs to no class.
        is_settled: Whether somebody decided on the label; otherwise the row was skipped.
        by: Who said it: a person, ``PROGRAM``, or empty if the file does not say whether a person
            looked at the row.
        time: When, as it was written.
    """

    row: str
    label: str | None
    is_settled: bool = True
    by: str = ""
    time: str = ""


def export(audit: Audit, out: str | Path, *, format: str) -> None:
    """Writes the audit for another tool.

    Args:
        audit: The audit.
        out: The file: ``.json`` for Label Studio and FiftyOne; for the mask ``.npy``, or ``.csv``
            with the row ids.
        format: One of ``FORMATS``.

    Raises:
        ArgumentError: If the format is unknown, or the file has another extension.
        DataError: If the rows cannot be named in the format.
    """
    check_choice("format", format, FORMATS)
    endings = (".npy", ".csv") if format == "mask" else (".json",)
    out = Path(out)
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

    A row is named as FiftyOne names a file, without its extension, and has the number of the
    suggested class; the given label and the findings are attributes, and so is the suggestion, by
    which `read_opinions` finds the labels that a person changed.

    Raises:
        DataError: If two rows would have the same name.
    """
    labels: dict[str, object] = {}
    for row, row_id in enumerate(audit.row_ids.tolist()):
        name = os.path.splitext(row_id)[0]
        if name in labels:
            raise DataError(
                f"row {row_id!r}: FiftyOne names files without their extension, and there is "
                f"another {name!r}"
            )
        labels[name] = {
            "label": int(audit.suggested[row]),
            "confidence": float(audit.suggested_probability[row]),
            "attributes": {
                "given": audit.class_names[audit.given[row]],
                "suggested": audit.class_names[audit.suggested[row]],
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


def read_opinions(path: Path) -> list[Opinion]:
    """What a file of a label tool says about rows.

    Args:
        path: ``.json``: tasks of Label Studio with annotations (JSON or JSON-MIN), ``labels.json``
            of a FiftyOneImageClassificationDataset or ``samples.json`` of a FiftyOneDataset.
            ``.csv``, ``.tsv`` or ``.parquet``: a column row_id, and a column label of class names
            or cleanlab's is_label_issue. A row that is only known to be an issue is not
            settled.

    An annotation of Label Studio on which no time was spent was imported or made from a prediction,
    and a label of FiftyOne that is as `fiftyone_labels` wrote it was not changed by anybody: both
    are by ``PROGRAM``, unless FiftyOne's label or sample has the tag ``reviewed``. FiftyOne writes
    the suggestion into ``labels.json`` only with ``include_attributes=True``; without it, and in
    a table, nothing says who decided.

    Raises:
        DataError: If the file cannot be read, or is none of these.
    """
    if path.suffix.lower() in TABLE_SUFFIXES:
        return _of_table(path)
    try:
        content = json.loads(read_file(path))
    except DataError:
        raise
    except (ValueError, RecursionError):
        raise DataError(f"{path}: is not JSON, CSV or Parquet") from None
    try:
        if isinstance(content, list):
            _check_annotated(path, content)
            return [opinion for task in content for opinion in _of_task(task)]
        if "samples" in content:
            return _of_samples(content["samples"])
        classes, labels = content.get("classes"), content["labels"]
        named = [(name, each, _class_name(each, classes)) for name, each in labels.items()]
        return _of_labels(named)
    except DataError:
        raise
    except ValueError as error:  # with words of ours
        raise _unknown(path, f": {error}") from None
    except KeyError as error:
        raise _unknown(path, f": it lacks {error}") from None
    except (TypeError, AttributeError, IndexError):
        raise _unknown(path, "") from None


def _unknown(path: Path, why: str) -> DataError:
    return DataError(f"{path}: is neither an export of Label Studio nor of FiftyOne{why}")


def _check_annotated(path: Path, tasks: Sequence[dict[str, Any]]) -> None:
    """Raises if no task was annotated, or what was chosen in them is not called label.

    Raises:
        DataError: If so.
    """
    if tasks and all("data" in task and "annotations" not in task for task in tasks):
        raise DataError(
            f"{path}: its tasks have no annotations; choose classes in Label Studio, and export "
            "them as JSON"
        )
    brief = [task for task in tasks if "annotations" not in task]
    if brief and not any("label" in task for task in brief):
        raise DataError(
            f"{path}: no task has a field label: the choices must be called so, "
            '<Choices name="label" toName="item">'
        )


def _of_task(task: dict[str, Any]) -> Iterator[Opinion]:
    """The annotations of a task of Label Studio; a task without any says nothing."""
    if "annotations" not in task:  # JSON-MIN: one object for each annotation, of what was chosen
        if task.get("annotation_id", 0) is None:  # or for a task that nobody has annotated
            return
        choice = task.get("label", {"choices": []})
        names = choice["choices"] if isinstance(choice, dict) else [choice]
        person = _author(task, task.get("annotator"))
        yield Opinion(_item(task), _only(names), True, person, _time(task))
        return
    for each in task["annotations"]:
        chosen = [
            name
            for result in each["result"]
            if result["type"] == "choices"
            for name in result["value"]["choices"]
        ]
        is_settled = not each.get("was_cancelled", False)
        person = _author(each, each.get("completed_by"))
        yield Opinion(_item(task["data"]), _only(chosen), is_settled, person, _time(each))


def _item(data: dict[str, Any]) -> str:
    """The row of a task: ``item`` as `export` names it, or the only address or path in it."""
    if isinstance(data.get("item"), str):
        return str(data["item"])
    known = ("given", "label", "annotator", "created_at", "updated_at")
    texts = [value for key, value in data.items() if key not in known and isinstance(value, str)]
    if len(texts) != 1:
        raise ValueError("a task needs a field item with the row id")
    return texts[0]


def _only(names: Sequence[str]) -> str | None:
    if len(names) > 1:
        raise ValueError(f"a row has more than one class: {', '.join(map(str, names))}")
    return str(names[0]) if names else None


def _author(annotation: dict[str, Any], who: object) -> str:
    """Who made an annotation of Label Studio.

    Its action "Create annotations from predictions" names the user who called it, and not the time
    that was spent on each task.
    """
    if annotation.get("lead_time", 0) is None:
        return PROGRAM
    known = who.get("email", who.get("id", "")) if isinstance(who, dict) else who
    return "label-studio" if known in (None, "") else f"label-studio:{known}"


def _time(each: dict[str, Any]) -> str:
    return str(each.get("updated_at") or each.get("created_at") or "")


def _of_samples(samples: Sequence[dict[str, Any]]) -> list[Opinion]:
    """The labels of FiftyOne's samples: the one classification that they have, or ground_truth.

    FiftyOne leaves the field out where the label was deleted.
    """
    fields = {name for sample in samples for name, value in sample.items() if _is_label(value)}
    if "ground_truth" not in fields and len(fields) != 1:
        raise ValueError("samples need a classification called ground_truth")
    field = "ground_truth" if "ground_truth" in fields else fields.pop()
    named = []
    for sample in samples:
        label = sample.get(field)
        if label is not None and _REVIEWED in (sample.get("tags") or ()):
            label = {**label, "tags": [_REVIEWED]}
        named.append((str(sample["filepath"]), label, label and str(label["label"])))
    return _of_labels(named)


def _of_labels(named: Sequence[tuple[str, Any, str | None]]) -> list[Opinion]:
    """Opinions of labels of FiftyOne: the row, the label as it was written, and its class name."""
    is_export = any(_suggested(label) is not None for _, label, _ in named)
    return [
        Opinion(row, name, by=_last_author(label, name, is_export=is_export))
        for row, label, name in named
    ]


def _last_author(label: object, name: str | None, *, is_export: bool) -> str:
    """Who decided on a label of FiftyOne; empty if the label does not say.

    Args:
        label: The label as it was written.
        name: Its class name; None if there is no label.
        is_export: Whether the file goes back to one of `fiftyone_labels`.
    """
    if name is None:
        return "fiftyone" if is_export else ""  # every label of an export has a class
    if isinstance(label, dict):
        if _REVIEWED in (label.get("tags") or ()):
            return "fiftyone"
        if (suggested := _suggested(label)) is not None:
            return PROGRAM if name == suggested else "fiftyone"
        if label.get("confidence") is not None:
            return PROGRAM
    return ""


def _suggested(label: object) -> str | None:
    """The suggestion that `fiftyone_labels` wrote beside a label, if it did."""
    if not isinstance(label, dict):
        return None
    found = label.get("suggested", (label.get("attributes") or {}).get("suggested"))
    return found if isinstance(found, str) else None


def _is_label(value: object) -> bool:
    return isinstance(value, dict) and value.get("_cls") == "Classification"


def _class_name(target: object, classes: Sequence[str] | None) -> str | None:
    if isinstance(target, dict):
        target = target["label"]
    if target is None or isinstance(target, str):
        return target
    if classes is None or not isinstance(target, int) or not 0 <= target < len(classes):
        raise ValueError(f"{target!r} is not the number of a class")
    return classes[target]


def _of_table(path: Path) -> list[Opinion]:
    file = open_columns(path)
    column = next((name for name in ("label", "is_label_issue") if name in file.names), None)
    if "row_id" not in file.names or column is None:
        raise DataError(
            f"{path}: has no columns row_id and decision, label or is_label_issue (columns: "
            f"{listing(file.names)})"
        )
    values, _ = file.read(["row_id", column], ())
    texts = [as_texts(values[name]) for name in ("row_id", column)]
    if column == "is_label_issue":
        issues = list(zip(*texts, strict=True))
        for row, text in issues:
            if text.lower() not in (*_TRUE, *_FALSE):
                raise DataError(f"{path}: row {row!r}: {column} is {text!r}, not true or false")
        return [
            Opinion(unguard(row), None, False, PROGRAM)
            for row, text in issues
            if text.lower() in _TRUE
        ]
    return [Opinion(unguard(row), label) for row, label in zip(*texts, strict=True)]


def write_csv(path: Path, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes a CSV file (RFC 4180) or, by its extension, a Parquet file, atomically."""
    with whole_file(path) as file:
        file.write(table_bytes(path, names, rows))


def table_bytes(path: Path, names: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """What ``write_csv`` writes to a file of this name."""
    if path.suffix.lower() == ".parquet":
        pyarrow = import_extra("pyarrow", extra="data")
        parquet = import_extra("pyarrow.parquet", extra="data")
        columns = [list(each) for each in zip(*rows, strict=True)]
        memory = io.BytesIO()
        parquet.write_table(pyarrow.table(columns, list(names)), memory)
        return memory.getvalue()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue().encode("utf-8")


def guard(text: str) -> str:
    """Puts an apostrophe before a text that a spreadsheet would run as a formula.

    Examples:
        >>> guard("=1+1"), guard("cat"), unguard(guard("'=x"))
        ("'=1+1", 'cat', "'=x")
    """
    return f"'{text}" if _GUARDED.match(text) else text


def unguard(text: str) -> str:
    """Undoes ``guard``."""
    return text[1:] if text.startswith("'") and _GUARDED.match(text) else text
