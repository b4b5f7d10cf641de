"""How names, numbers and tables are shown: terminal, Markdown, CSV."""

import csv
import io
import os
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from imae.errors import check_choice, import_extra
from imae.records.files import printable, write_file
from imae.records.measures import COLUMNS
from imae.report.hints import Summary

if TYPE_CHECKING:
    from imae.report.comparison import Row, Table

# The columns of a report: the measures that summarise a run.
REPORTED = tuple(column for column in COLUMNS if column.measure.is_summary)
UNKNOWN = "-"
Item = TypeVar("Item")


def shorten(text: str, *, limit: int) -> str:
    """The text, or its beginning and an ellipsis if it has more than ``limit`` characters.

    Examples:
        >>> shorten("symmetric", limit=4)
        'sym…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shorten_middle(text: str, *, limit: int) -> str:
    """The text, or its beginning and its end if it has more than ``limit`` characters.

    The end of a path or an id is what tells rows apart.

    Examples:
        >>> shorten_middle("train/t-shirt/0a1b2c.jpg", limit=13)
        'train/…2c.jpg'
    """
    if len(text) <= limit:
        return text
    end = limit // 2
    return text[: limit - 1 - end] + "…" + text[len(text) - end :]


def thin(items: Sequence[Item], *, limit: int) -> list[Item]:
    """At most ``limit`` of the items, evenly spaced, including the first and the last.

    Examples:
        >>> thin(range(100), limit=4)
        [0, 33, 66, 99]
    """
    if len(items) <= limit:
        return list(items)
    return [items[round(place * (len(items) - 1) / (limit - 1))] for place in range(limit)]


def percent(fraction: float | None) -> str:
    """A fraction in percent with one decimal, or a dash if it is unknown.

    Examples:
        >>> percent(0.616), percent(None)
        ('61.6', '-')
    """
    return UNKNOWN if fraction is None else f"{100 * fraction:.1f}"


def noise_words(noise: str) -> str:
    """The noise of a setting as a part of a sentence.

    Examples:
        >>> noise_words("none"), noise_words("symmetric:0.4"), noise_words("labels from fixed.csv")
        ('no noise added', 'noise symmetric:0.4', 'labels from fixed.csv')
    """
    if noise == "none":
        return "no noise added"
    return noise if noise.startswith("labels from ") else f"noise {noise}"


def setting_words(setting: tuple[str, str, str]) -> str:
    """Data, noise and network in one line."""
    data, noise, model = setting
    return f"{data}, {noise_words(noise)}, {model}"


def duration(seconds: float | None) -> str:
    """A time in the unit that suits its size, or a dash if it is unknown.

    Examples:
        >>> duration(0.0123), duration(75.0), duration(7260.0)
        ('12.3 ms', '1 min 15 s', '2 h 1 min')
    """
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return f"{1000 * seconds:.1f} ms"
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


_NUM_NAMES = 4  # columns that name the row
_NAME_WIDTH = 32  # characters of a name in one line of a terminal
_NARROWEST = 8  # the same where there is no room
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~<>&$-])")


def as_text(shown: "Table", *, width: int) -> str:
    """The table for a terminal of this many columns.

    What is the same in every row is shown above the table, not in it. Where there is little room,
    the columns are closer together, then columns are left out from the right, which a note says,
    but never the one by which methods are compared; then names are folded. A number is never cut.
    """
    headings = _headings(shown)
    lines = [[cell.replace(" ± ", "±") for cell in _cells(shown, row)] for row in shown.rows]
    # The method stays: a table of one method must still name it.
    shared = [
        column
        for column in range(_NUM_NAMES - 1)
        if lines and len({line[column] for line in lines}) == 1
    ]
    words = ("data {}".format, noise_words, "network {}".format)
    above = [words[column](lines[0][column]) for column in shared]
    kept = [column for column in range(len(headings)) if column not in shared]
    decisive = _decisive(shown)
    removable = [place for place in kept if place >= _NUM_NAMES and place != decisive]
    sheet = _sheet(headings, lines, kept, gap=1)
    name_width = _NAME_WIDTH
    while _width(sheet) > width and (removable or name_width > _NARROWEST):
        if _width(narrow := _sheet(headings, lines, kept, gap=0)) <= width:
            sheet = narrow
        elif removable:
            kept.remove(removable.pop())
            sheet = _sheet(headings, lines, kept, gap=0)
        else:
            name_width -= 1
            sheet = _sheet(headings, lines, kept, gap=0, name_width=name_width)
    left_out = [headings[place] for place in range(_NUM_NAMES, len(headings)) if place not in kept]
    below = notes(shown)
    if left_out:
        below.append(f"left out for lack of width: {', '.join(left_out)}")
    out = io.StringIO()
    out.write(f"{_fill(', '.join([*above, 'accuracy in percent']), width)}\n")
    _plain_console(out).print(sheet)
    out.writelines(f"{_fill(note, width)}\n" for note in below)
    return out.getvalue()


def _fill(text: str, width: int) -> str:
    """The text in lines of at most this width, unless a single word is longer."""
    return textwrap.fill(text, max(1, width), break_long_words=False, break_on_hyphens=False)


def _decisive(shown: "Table") -> int:
    """Place of the column by which methods are compared."""
    names = [column.name for column in shown.columns]
    first = _NUM_NAMES + 1
    return first + names.index("final") if "final" in names else first


def _plain_console(file: IO[str]) -> Any:
    # Unlimited width, or rich would cut what does not fit.
    return import_extra("rich.console", extra="report").Console(
        file=file, width=100_000, color_system=None
    )


def _width(sheet: Any) -> int:
    return int(_plain_console(io.StringIO()).measure(sheet).maximum)


def _sheet(
    headings: Sequence[str],
    lines: Sequence[Sequence[str]],
    kept: Sequence[int],
    *,
    gap: int,
    name_width: int = _NAME_WIDTH,
) -> Any:
    box = import_extra("rich.box", extra="report")
    text = import_extra("rich.text", extra="report").Text
    sheet = import_extra("rich.table", extra="report").Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 0, 0, gap)
    )
    for column in kept:
        is_name = column < _NUM_NAMES
        sheet.add_column(
            headings[column].replace(" ", "\n"),
            justify="left" if is_name else "right",
            vertical="bottom",
            overflow="fold",
            max_width=name_width if is_name else None,
        )
    for line in lines:
        sheet.add_row(*(text(line[column]) for column in kept))  # Text: no markup is read from it
    return sheet


def as_markdown(shown: "Table") -> str:
    """The table in Markdown, accuracy in percent, notes below it."""
    headings = _headings(shown)
    rule = ["---"] * _NUM_NAMES + ["---:"] * (len(headings) - _NUM_NAMES)
    lines = [headings, rule]
    for row in shown.rows:
        cells = _cells(shown, row)
        lines.append([*map(_literal, cells[:_NUM_NAMES]), *cells[_NUM_NAMES:]])
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return text + "".join(f"\n{_literal(note)}\n" for note in notes(shown))


def as_csv(shown: "Table") -> str:
    """The table for programs: fractions at full precision, an empty cell for what is unknown."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = [column.name for column in REPORTED] + ["seconds_per_step"]
    parts = [f"{column}_{part}" for column in columns for part in ("mean", "deviation", "count")]
    writer.writerow(["data", "noise", "model", "method", "seeds", *parts, "relative_time"])
    for row in shown.rows:
        names = (*row.setting, row.method)
        numbers: list[object] = [row.seeds]
        for summary in (*(row.values[column.name] for column in REPORTED), row.seconds_per_step):
            numbers += (
                [None, None, 0]
                if summary is None
                else [summary.mean, summary.deviation, summary.count]
            )
        writer.writerow([*map(_harmless, names), *numbers, row.relative_time])
    return out.getvalue()


def save_table(shown: "Table", path: str | os.PathLike[str]) -> None:
    """Writes the table as ``.csv`` or ``.md``, by the extension of the file.

    Raises:
        ArgumentError: If the file has another extension.
    """
    ending = Path(path).suffix.lower()
    check_choice("the extension of a table file", ending, (".csv", ".md"))
    text = as_csv(shown) if ending == ".csv" else as_markdown(shown)
    write_file(path, text)


def notes(shown: "Table") -> list[str]:
    """One line for each setting and each row that has something a reader must know."""
    settings = [
        printable(f"{setting_words(setting)}: {note}")
        for setting, found in shown.notes.items()
        for note in found
    ]
    return settings + [
        printable(f"{setting_words(row.setting)}, {row.method}: {'; '.join(row.notes)}")
        for row in shown.rows
        if row.notes
    ]


def summary_text(summary: Summary | None, *, seeds: int = 0) -> str:
    """Mean and deviation in percent, and the count if fewer than ``seeds`` runs have the number.

    Examples:
        >>> summary_text(Summary(mean=0.915, deviation=0.004, count=2), seeds=3)
        '91.5 ± 0.4 (2)'
    """
    if summary is None:
        return UNKNOWN
    deviation = "" if summary.deviation is None else f" ± {percent(summary.deviation)}"
    return percent(summary.mean) + deviation + (f" ({summary.count})" * (summary.count < seeds))


def time_text(relative_time: float | None) -> str:
    """Time of a step as a multiple of that of cce."""
    return UNKNOWN if relative_time is None else f"{relative_time:.2f}\N{MULTIPLICATION SIGN}"


def _headings(shown: "Table") -> list[str]:
    numbers = (column.heading for column in shown.columns)
    time = ["Time"] if _has_times(shown) else []
    return ["Data", "Noise added", "Network", "Method", "Seeds", *numbers, *time]


def _has_times(shown: "Table") -> bool:
    """Whether a time relative to that of cce is known."""
    return any(row.relative_time is not None for row in shown.rows)


def _cells(shown: "Table", row: "Row") -> list[str]:
    names = [printable(name) for name in (*row.setting, row.method)]
    numbers = [summary_text(row.values[each.name], seeds=row.seeds) for each in shown.columns]
    time = [time_text(row.relative_time)] if _has_times(shown) else []
    return [*names, str(row.seeds), *numbers, *time]


def _literal(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)


def _harmless(name: str) -> str:
    # A spreadsheet runs a cell that begins like a formula; the apostrophe makes it text.
    return "'" * name.startswith(("=", "+", "-", "@")) + printable(name)
