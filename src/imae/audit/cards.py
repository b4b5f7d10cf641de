"""What a reviewer sees of a row: a picture, text or cells, and what the audit says about it."""

import base64
import io
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from imae.audit.label_tools import guard, write_csv
from imae.audit.result import Audit
from imae.audit.sources import COLUMN_OPTIONS, stored_content
from imae.data import ArrayImages, Data, ImageFiles, Inputs, Split, Table
from imae.data.columns import find_roles
from imae.data.image_files import decode
from imae.data.loading import layout_of
from imae.data.sources.catalog import SOURCES
from imae.data.table import as_texts
from imae.data.table_file import open_columns
from imae.errors import DataError, ImaeError, import_extra
from imae.records import RunFolder
from imae.report.read import RunRecord
from imae.train.rows import unchanged_data

_SIDE = 224  # pixels of the longer side of a picture
_MOST_BYTES = 24_000  # of a picture
_QUALITIES = (82, 70, 55, 40, 25, 10)
_LARGE_SIDE = 1200  # of a picture that is shown by itself
_MOST_CELLS = 100
_LONGEST_CELL = 300
_LONGEST_TEXT = 5000
_CELLS_ON_CARD = 7  # on a phone; otherwise nine
_TEXT_ON_CARD = 180
_CELLS_AT_ONCE = 5_000_000
_SUSPECT_COLUMNS = (
    "row_id",
    "given",
    "suggested",
    "wrong_probability",
    "suggested_probability",
    "is_flagged",
    "fits_no_class",
    "group",
    "source",
)
NO_CLASS = "no class"
Cells: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Preview:
    """A row as a reviewer sees it; exactly one of the three is set.

    Args:
        picture: An image as a ``data:`` address.
        text: A text.
        cells: Names and values of columns.
        is_small: Whether the picture has few pixels, and is shown larger than it is.
    """

    picture: str | None = None
    text: str | None = None
    cells: Cells | None = None
    is_small: bool = False


Previewer = Callable[[str], Preview | None]
"""What makes the preview of the row with this id; None if the row cannot be shown."""


def no_previews(row_id: str) -> Preview | None:  # noqa: ARG001 - rows are told by their ids
    """Shows nothing of any row."""
    return None


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of data as people see them.

    Args:
        places: Inputs that hold each row, and its position in them, by row id.
        texts: Texts by row id, where the data is a file of texts: its inputs hold counts of words.
        cells: Names and cells of the columns by row id, where the data is a table in a file: as
            in the file, since the inputs are numbers with gaps filled in.
    """

    places: Mapping[str, tuple[Inputs, int]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    cells: Mapping[str, Cells] = field(default_factory=dict)

    @classmethod
    def of_run(
        cls,
        config: Mapping[str, Any],
        row_ids: Collection[str],
        content: Mapping[str, str] | None = None,
    ) -> "Rows":
        """Rows that a run trained on or held out.

        Args:
            config: The settings of the run, as its folder holds them.
            row_ids: Which rows.
            content: Hashes of the data that the run stored, if it did.

        Raises:
            ChangedDataError: If the data has changed: other rows would be shown.
            ImaeError: If it no longer exists or cannot be read.
        """
        settings = config.get("data")
        if not isinstance(settings, Mapping) or not isinstance(settings.get("name"), str):
            raise DataError("the settings of the run name no data")
        options = settings.get("options") or {}
        data = unchanged_data(settings, content or {})
        return cls(_places(data), *_of_file(settings["name"], options, set(row_ids)))

    def preview(self, row_id: str) -> Preview | None:
        """The preview of a row; None if there is nothing to show."""
        if row_id in self.texts:
            return Preview(text=self.texts[row_id][:_LONGEST_TEXT])
        if row_id in self.cells:
            return Preview(cells=self.cells[row_id])
        if row_id not in self.places:
            return None
        inputs, row = self.places[row_id]
        try:
            return row_preview(inputs, row)
        except ImaeError:  # an image that has been damaged or removed since
            return None

    def picture(self, row_id: str) -> bytes | None:
        """A large picture of a row as JPEG; None if the row is not an image file."""
        inputs, row = self.places.get(row_id, (None, 0))
        if not isinstance(inputs, ImageFiles):
            return None
        try:
            image = decode(inputs.root / inputs.names[row], size=_LARGE_SIDE)
        except ImaeError:
            return None
        image.thumbnail((_LARGE_SIDE, _LARGE_SIDE))
        return _encoded(image.convert("RGB"), "JPEG", quality=_QUALITIES[0])

    def source(self, row_id: str) -> str:
        """Path or text of a row; empty if it has neither."""
        if row_id in self.texts:
            return self.texts[row_id]
        inputs, row = self.places.get(row_id, (None, 0))
        return str(inputs.root / inputs.names[row]) if isinstance(inputs, ImageFiles) else ""


def run_pictures(run: RunRecord, row_ids: Sequence[str]) -> dict[str, str]:
    """Pictures of rows of a run, for its report; none where its data is gone or has none.

    It opens the data that the run's settings name, so pass only settings that are trusted.
    """
    try:
        rows = Rows.of_run(run.config, row_ids, stored_content(RunFolder(run.folder)))
    except (ImaeError, ImportError):  # the data has moved, or what reads it is not installed
        return {}
    found = {row_id: rows.preview(row_id) for row_id in row_ids}
    return {row_id: each.picture for row_id, each in found.items() if each and each.picture}


def _places(data: Data) -> dict[str, tuple[Inputs, int]]:
    splits: list[Split | None] = [data.validation, data.train]  # a training row wins
    return {
        row_id: (split.inputs, row)
        for split in splits
        if split is not None
        for row, row_id in enumerate(split.row_ids.tolist())
    }


def _of_file(
    name: str, options: Mapping[str, Any], wanted: Set[str]
) -> tuple[dict[str, str], dict[str, Cells]]:
    """Texts, or cells, of the wanted rows of a file; both empty if it has neither."""
    if name in SOURCES or layout_of(Path(name)) != "manifest":
        return {}, {}
    file = open_columns(Path(name))
    roles = find_roles(file, **{key: options.get(key) for key in COLUMN_OPTIONS})
    if roles.path is not None:
        return {}, {}
    first = roles.row_id or file.names[0]
    column = as_texts(file.read([first], ())[0][first])
    ids = [str(row) for row in range(len(column))] if roles.row_id is None else column
    rows = [row for row, row_id in enumerate(ids) if row_id in wanted]

    def read(names: Sequence[str]) -> dict[str, list[str]]:
        values, _ = file.read(names, ())
        return {each: as_texts([values[each][row] for row in rows]) for each in names}

    if roles.text is not None:
        texts = read([roles.text])[roles.text]
        return {ids[row]: text for row, text in zip(rows, texts, strict=True)}, {}
    shown = [each for each in file.names if each not in (roles.label, roles.row_id)]
    names = [*([] if roles.row_id is None else [roles.row_id]), *shown][:_MOST_CELLS]
    at_once = max(1, _CELLS_AT_ONCE // max(1, len(ids)))  # all of a large file would fill memory
    parts = [read(names[start : start + at_once]) for start in range(0, len(names), at_once)]
    table = {each: texts for part in parts for each, texts in part.items()}
    hidden = len(shown) + (roles.row_id is not None) - len(names)
    more = (("...", f"{hidden} more columns"),) if hidden else ()
    return {}, {
        ids[row]: (*((each, table[each][place][:_LONGEST_CELL]) for each in names), *more)
        for place, row in enumerate(rows)
    }


def row_preview(inputs: Inputs, row: int) -> Preview | None:
    """The preview of a row of these inputs; None if there is nothing to show.

    Raises:
        DataError: If its image cannot be read.
    """
    if isinstance(inputs, ImageFiles):
        return picture_preview(decode(inputs.root / inputs.names[row], size=_SIDE))
    if isinstance(inputs, ArrayImages):
        return picture_preview(_from_pixels(inputs.pixels[row]))
    if isinstance(inputs, Table):
        return Preview(cells=_cells(inputs, row))
    return None


def _from_pixels(pixels: NDArray[np.uint8]) -> Any:
    library = import_extra("PIL.Image", extra="data")
    channels = pixels.shape[0]
    if channels in (1, 3):
        return library.fromarray(pixels[0] if channels == 1 else pixels.transpose(1, 2, 0))
    return library.fromarray(pixels.mean(axis=0).astype(np.uint8))


def picture_preview(image: Any) -> Preview:
    """The preview of a Pillow image, which is shrunk in place."""
    is_small = max(image.size) <= 64
    image.thumbnail((_SIDE, _SIDE))
    if is_small:
        return Preview(picture=_address("png", _encoded(image, "PNG")), is_small=True)
    for quality in _QUALITIES:
        content = _encoded(image.convert("RGB"), "JPEG", quality=quality, optimize=True)
        if len(content) <= _MOST_BYTES:
            break
    return Preview(picture=_address("jpeg", content))


def _encoded(image: Any, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def _address(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _cells(table: Table, row: int) -> Cells:
    values = table.values[row, :_MOST_CELLS].astype(np.float64)
    if table.mean is not None and table.std is not None:  # back to the units of the file
        values = values * table.std[:_MOST_CELLS] + table.mean[:_MOST_CELLS]
    names = table.columns or tuple(f"column {place}" for place in range(table.shape[0]))
    cells = [(name, f"{value:.6g}") for name, value in zip(names, values, strict=False)]
    if table.shape[0] > _MOST_CELLS:
        cells.append(("...", f"{table.shape[0] - _MOST_CELLS} more columns"))
    return tuple(cells)


def suspects(audit: Audit) -> NDArray[np.int64]:
    """Positions of the rows to review, most suspect first, near-identical rows together.

    They are the flagged rows, those that fit no class, and near-identical rows whose labels differ.
    """
    is_suspect = audit.is_flagged | audit.fits_no_class | in_conflict(audit)
    members: dict[int, list[int]] = {}
    order = [row for row in audit.order().tolist() if is_suspect[row]]
    for row in order:
        members.setdefault(int(audit.group[row]), []).append(row)
    placed: list[int] = []
    for row in order:
        group = int(audit.group[row])
        placed.extend([row] if group < 0 else members.pop(group, []))
    return np.array(placed, dtype=np.int64)


def in_conflict(audit: Audit) -> NDArray[np.bool_]:
    """Whether each row is in a group of near-identical rows with different labels."""
    found = np.zeros(len(audit), dtype=bool)
    grouped = np.flatnonzero(audit.group >= 0)
    if len(grouped):
        groups, labels = audit.group[grouped], audit.given[grouped]
        pairs = np.unique(np.stack([groups, labels], axis=1), axis=0)
        numbers, counts = np.unique(pairs[:, 0], return_counts=True)
        found[grouped] = np.isin(groups, numbers[counts > 1])
    return found


def write_suspects(audit: Audit, rows: Rows, path: Path) -> None:
    """Writes the rows to review as a list, most suspect first, near-identical rows together.

    The columns are ``row_id``, ``given``, ``suggested`` (empty for a row that fits no class),
    ``wrong_probability``, ``suggested_probability``, ``is_flagged``, ``fits_no_class``, ``group``
    of near-identical rows, and ``source``, the path or text of the row.
    """
    names = audit.class_names
    content = (
        (
            guard(row_id := str(audit.row_ids[row])),
            guard(names[audit.given[row]]),
            "" if (number := suggestion(audit, row)) is None else guard(names[number]),
            f"{audit.wrong_probability[row]:.4f}",
            f"{audit.suggested_probability[row]:.4f}",
            bool(audit.is_flagged[row]),
            bool(audit.fits_no_class[row]),
            "" if audit.group[row] < 0 else int(audit.group[row]),
            guard(rows.source(row_id)),
        )
        for row in suspects(audit).tolist()
    )
    write_csv(path, _SUSPECT_COLUMNS, content)


def suggestion(audit: Audit, row: int) -> int | None:
    """Suggested class number of a row, None if it fits no class."""
    return None if audit.fits_no_class[row] else int(audit.suggested[row])


def make_cards(
    audit: Audit,
    rows: NDArray[np.int64],
    names: Sequence[str],
    preview: Previewer,
    most_previews: int,
) -> list[dict[str, Any]]:
    """What the template shows of each row; only the first ``most_previews`` get a preview."""
    sizes = Counter(audit.group[rows].tolist())
    cards = []
    for place, row in enumerate(rows.tolist()):
        suggested = suggestion(audit, row)
        row_id = str(audit.row_ids[row])
        group = int(audit.group[row])
        shown: Preview | None = preview(row_id) if place < most_previews else None
        others = sizes[group] - 1 if group >= 0 else 0
        cards.append(
            {
                "id": row_id,
                "given": names[audit.given[row]],
                "suggested": NO_CLASS if suggested is None else names[suggested],
                "sure": "" if suggested is None else _share(audit.suggested_probability[row]),
                "certainty": _share(audit.wrong_probability[row]),
                "is_believed": suggested == audit.given[row],
                "group": group,
                "alike": f"{others} other{'s' * (others > 1)}" if others else "",
                "preview": shown,
                "look": _look(shown),
            }
        )
    return cards


def _look(preview: Preview | None) -> str:
    """Text of the button that opens the whole row; empty if the card shows all of it."""
    if preview is None:
        return ""
    if preview.text is not None:
        return "Whole text" if len(preview.text) > _TEXT_ON_CARD else ""
    if preview.cells is not None:
        number = len(preview.cells)
        return f"All {number} columns" if number > _CELLS_ON_CARD else ""
    return ""  # a click on a picture enlarges it


def _share(probability: float) -> str:
    return f"{100 * probability:.0f}%"
