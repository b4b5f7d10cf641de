"""The page on which people review suspect rows: offline, one file or a folder of files."""

import functools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae.audit.cards import (
    NO_CLASS,
    Previewer,
    in_conflict,
    make_cards,
    no_previews,
    suggestion,
    suspects,
)
from imae.audit.correct import Checked, Sample
from imae.audit.decisions import Decision, download_name, identity
from imae.audit.result import Audit
from imae.errors import ArgumentError
from imae.records.files import printable, whole_file
from imae.report.formats import percent
from imae.report.page import build_environment, policy

PAGE_SIZE = 500  # suspects on one page
MOST_PREVIEWS = 2000  # rows with a picture or text, over all pages
_SCRIPTS = ("decisions.js", "search.js", "look.js", "review.js")
_MATRIX_CLASSES = 12  # with more, the confusion is a list
_LISTED_PAIRS = 40
_KEYED_CLASSES = 20
_HARDLY_ANY = 0.1  # of the estimated rate: a range that begins below does not rule out 0
_COUNTED = 20_000  # suspects that filters count on other pages


class Overview:
    """What all pages about an audit show, computed once.

    Args:
        audit: The audit.
    """

    def __init__(self, audit: Audit) -> None:
        self.audit = audit
        self.names = [printable(name) for name in audit.class_names]

    @functools.cached_property
    def suspects(self) -> NDArray[np.int64]:
        """Positions of the rows to review, in their order."""
        return suspects(self.audit)

    @property
    def num_pages(self) -> int:
        """Number of pages that the suspects take, at least 1."""
        return max(1, -(-len(self.suspects) // PAGE_SIZE))

    @functools.cached_property
    def identity(self) -> str:
        """What identifies the audited labels."""
        return identity(self.audit)

    @functools.cached_property
    def pairs(self) -> list[dict[str, object]]:
        """From ``list_pairs``."""
        return list_pairs(self.audit, self.suspects, self.names)

    @functools.cached_property
    def confusion(self) -> dict[str, object]:
        """From ``confusion``."""
        return confusion(self.audit, self.suspects, self.names)

    @functools.cached_property
    def counted(self) -> list[dict[str, object]]:
        """What filters need to count the rows of each page: columns of plain numbers."""
        audit, pages = self.audit, []
        for start in range(0, min(len(self.suspects), _COUNTED), PAGE_SIZE):
            rows = self.suspects[start : start + PAGE_SIZE]
            suggested = np.where(audit.fits_no_class[rows], -1, audit.suggested[rows])
            pages.append(
                {
                    "part": start // PAGE_SIZE,
                    "file": page_name(start // PAGE_SIZE),
                    "given": audit.given[rows].tolist(),
                    "suggested": suggested.tolist(),
                    "certainty": (100 * audit.wrong_probability[rows]).round(1).tolist(),
                    "group": (audit.group[rows] >= 0).astype(int).tolist(),
                }
            )
        return pages


def write_review(
    audit: Audit,
    out: str | os.PathLike[str],
    *,
    preview: Previewer = no_previews,
    most_previews: int = MOST_PREVIEWS,
    checked: Checked | None = None,
    about: str = "",
) -> list[Path]:
    """Writes the review page, or for many suspects a folder of pages.

    Args:
        audit: The audit.
        out: File of the page, ``.html``. With more than ``PAGE_SIZE`` suspects the pages are
            files in a folder beside it, of the same name without its extension.
        preview: Makes the preview of a row.
        most_previews: Only this many of the most suspect rows get a preview.
        checked: What a person found in a sample, if somebody looked.
        about: Name of the data and the date, for the title.

    Returns:
        The files that were written, the one to open first.

    Raises:
        ArgumentError: If ``out`` has another extension.
        MissingExtraError: If jinja2 is not installed.
    """
    path, overview = _page_file(out), Overview(audit)
    num_parts = overview.num_pages
    files = (
        [path]
        if num_parts == 1
        else [path.with_suffix("") / page_name(n) for n in range(num_parts)]
    )
    for part, file in enumerate(files):
        text = render(
            overview,
            part=part,
            preview=preview,
            most_previews=most_previews,
            checked=checked,
            about=about,
        )
        with whole_file(file) as opened:
            opened.write(text.encode("utf-8"))
    for old in (path, *path.with_suffix("").glob("page-*.html")):  # of an earlier audit
        if old not in files:
            old.unlink(missing_ok=True)
    return files


def write_check_page(
    audit: Audit,
    sample: Sample,
    out: str | os.PathLike[str],
    *,
    preview: Previewer = no_previews,
    about: str = "",
) -> Path:
    """Writes the page on which a person judges a random sample of the flagged rows.

    Raises:
        ArgumentError: If ``out`` does not end in ``.html``.
    """
    path = _page_file(out)
    text = render(Overview(audit), sample=sample, preview=preview, about=about)
    with whole_file(path) as file:
        file.write(text.encode("utf-8"))
    return path


def _page_file(out: str | os.PathLike[str]) -> Path:
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"the page must end in .html, got {path}")
    return path


def page_name(part: int) -> str:
    """File name of a page of several, counted from 0.

    Examples:
        >>> page_name(0)
        'page-0001.html'
    """
    return f"page-{part + 1:04d}.html"


def render(
    overview: Overview,
    *,
    part: int = 0,
    sample: Sample | None = None,
    saved: Mapping[int, Decision] | None = None,
    preview: Previewer = no_previews,
    most_previews: int = MOST_PREVIEWS,
    checked: Checked | None = None,
    about: str = "",
) -> str:
    """A page as text.

    Args:
        overview: Of the audit.
        part: Which page of several, counted from 0.
        sample: For the check: the sample; then nothing else is shown.
        saved: For a page from a server: what was decided before, by position of the row.
        preview: Makes the preview of a row.
        most_previews: Only this many of the most suspect rows get a preview.
        checked: What a person found in a sample.
        about: Name of the data and the date, for the title.
    """
    environment = build_environment("imae.audit", "imae.report")
    audit, names, everything = overview.audit, overview.names, overview.suspects
    start = part * PAGE_SIZE
    rows = everything[start : start + PAGE_SIZE] if sample is None else sample.rows
    first = most_previews - start if sample is None else len(rows)
    is_served = saved is not None
    further = ["img-src data:", *(["connect-src 'self'"] if is_served else [])]
    return str(
        environment.get_template("review.html").render(
            policy=policy(
                environment,
                styles=("page.css", "review.css"),
                scripts=_SCRIPTS,
                further=further,
            ),
            about=about,
            title="check" if sample is not None else f"{len(everything)} suspects",
            verdict=_verdict(audit, sample),
            is_check=sample is not None,
            is_served=is_served,
            checked=None if checked is None else checked.sentence(),
            numbers=_numbers(audit, len(everything)),
            part=part,
            num_parts=1 if sample is not None else overview.num_pages,
            page_name=page_name,
            classes=names,
            pairs=overview.pairs if sample is None else list_pairs(audit, rows, names),
            confusion=overview.confusion,
            cards=make_cards(audit, rows, names, preview, first),
            hidden_previews=sample is None and len(everything) > most_previews > 0,
            num_previews=most_previews,
            keys=class_keys(names),
            data={
                **page_data(overview, rows, sample, saved),
                "part": part,
                "others": [each for each in overview.counted if each["part"] != part]
                if sample is None
                else [],
                "num_suspects": len(rows) if sample is not None else len(everything),
            },
        )
    )


def is_doubtful(audit: Audit) -> bool:
    """Whether the range of the noise rate begins near 0, so that perhaps no label is wrong.

    The network may contradict labels only because it has not learned its classes, from few rows or
    where classes overlap.
    """
    return audit.noise_rate_low < _HARDLY_ANY * audit.noise_rate


def rate_words(audit: Audit) -> str:
    """The estimated noise rate with its range, in words."""
    low, high = percent(audit.noise_rate_low), percent(audit.noise_rate_high)
    if is_doubtful(audit):
        return (
            f"{low}% to {high}% of {len(audit):,} labels are wrong, perhaps none; about "
            f"{percent(audit.noise_rate)}% by the estimate"
        )
    return (
        f"About {percent(audit.noise_rate)}% of {len(audit):,} labels are wrong (range {low}% "
        f"to {high}%)"
    )


def review_words(audit: Audit) -> str:
    """How many rows there are to review, by reason."""
    is_open = audit.fits_no_class & ~audit.is_flagged
    is_alike = in_conflict(audit) & ~audit.is_flagged & ~audit.fits_no_class
    num_flagged, num_open, num_alike = (
        int(each.sum()) for each in (audit.is_flagged, is_open, is_alike)
    )
    total = num_flagged + num_open + num_alike
    further = []
    if num_open:
        further.append(f"{_other_rows(num_open)} that fit{'s' * (num_open == 1)} no class")
    if num_alike:
        further.append(f"{_other_rows(num_alike)} near-identical to rows of another label")
    flagged = ", ".join([f"{num_flagged:,} flagged", *further])
    return f"{total:,} row{'s' * (total != 1)} to review: {flagged}"


def _other_rows(number: int) -> str:
    return f"{number:,} other{'s' * (number != 1)}"


def _verdict(audit: Audit, sample: Sample | None) -> str:
    if sample is None:
        return f"{rate_words(audit)}; {review_words(audit)}."
    return (
        f"Judge all {len(sample.rows)} rows, drawn at random from the "
        f"{int(audit.is_flagged.sum()):,} flagged ones. Without a person no method can promise how "
        "many of them are wrong."
    )


def _numbers(audit: Audit, num_suspects: int) -> list[dict[str, str]]:
    conflicts = len(np.unique(audit.group[in_conflict(audit)]))
    interval = f"{percent(audit.noise_rate_low)} to {percent(audit.noise_rate_high)}"
    return [
        {
            "words": f"row{'s' * (num_suspects != 1)} to review",
            "value": f"{num_suspects:,}",
            "range": "",
        },
        {
            "words": "of the labels are wrong, estimated",
            "value": f"{percent(audit.noise_rate)}%",
            "range": interval,
        },
        {"words": "that fit no class", "value": f"{audit.fits_no_class.sum():,}", "range": ""},
        {
            "words": f"group{'s' * (conflicts != 1)} of near-identical rows with different labels",
            "value": f"{conflicts:,}",
            "range": "",
        },
    ]


def _counts(audit: Audit, rows: NDArray[np.int64]) -> Counter[tuple[int, int | None]]:
    return Counter((int(audit.given[row]), suggestion(audit, row)) for row in rows.tolist())


def _pair(pair: tuple[int, int | None], count: int, names: Sequence[str]) -> dict[str, object]:
    given, suggested = pair
    return {
        "key": f"{given}-{'none' if suggested is None else suggested}",
        "given": names[given],
        "suggested": NO_CLASS if suggested is None else names[suggested],
        "count": count,
    }


def list_pairs(
    audit: Audit, rows: NDArray[np.int64], names: Sequence[str]
) -> list[dict[str, object]]:
    """Pairs of given and suggested class among rows, the most frequent first."""
    return [_pair(pair, count, names) for pair, count in _counts(audit, rows).most_common()]


def confusion(audit: Audit, rows: NDArray[np.int64], names: Sequence[str]) -> dict[str, object]:
    """Counts of given against suggested: a matrix for few classes, otherwise a list of pairs."""
    counts = _counts(audit, rows)
    most = max(counts.values(), default=1)
    pairs = [_pair(pair, count, names) for pair, count in counts.most_common(_LISTED_PAIRS)]
    matrix = None
    if len(names) <= _MATRIX_CLASSES:
        columns: list[int | None] = [*range(len(names)), None]
        matrix = [
            [
                {
                    **_pair((given, suggested), counts[given, suggested], names),
                    "heat": 1 + int(2.99 * counts[given, suggested] / most),
                }
                for suggested in columns
            ]
            for given in range(len(names))
        ]
    return {"matrix": matrix, "pairs": pairs, "num_pairs": len(counts)}


def class_keys(names: Sequence[str]) -> list[tuple[str, str]]:
    """The key of each class that has one, and its name, in the order of the classes.

    A class whose name is a digit has that key; the others have the remaining keys, in order.

    Examples:
        >>> class_keys([f"c{number}" for number in range(30)])[9:11]
        [('0', 'c9'), ('shift 1', 'c10')]
        >>> class_keys(["0", "1", "none"])
        [('0', '0'), ('1', '1'), ('2', 'none')]
    """
    keyed = names[:_KEYED_CLASSES]
    every = [f"{shift}{(digit + 1) % 10}" for shift in ("", "shift ") for digit in range(10)]
    left = iter([key for key in every if key not in keyed])
    return [(name if name in every else next(left), name) for name in keyed]


def page_data(
    overview: Overview,
    rows: NDArray[np.int64],
    sample: Sample | None,
    saved: Mapping[int, Decision] | None,
) -> dict[str, object]:
    """The data that the script of the page reads."""
    audit, names = overview.audit, overview.names
    return {
        "identity": overview.identity,
        "file": download_name(overview.identity),
        "served": saved is not None,
        "confidence": None if sample is None else sample.confidence,
        "num_flagged": int(audit.is_flagged.sum()),
        "classes": list(audit.class_names),
        "shown": list(names),
        "keys": [key for key, _ in class_keys(names)],
        "rows": [
            {
                "id": str(audit.row_ids[row]),
                "given": int(audit.given[row]),
                "suggested": suggestion(audit, row),
                "certainty": round(float(audit.wrong_probability[row]), 6),
                "group": int(audit.group[row]),
            }
            for row in rows.tolist()
        ],
        "saved": saved_data(audit, saved or {}),
    }


def saved_data(audit: Audit, saved: Mapping[int, Decision]) -> list[dict[str, object]]:
    """Decisions of people, by position of the row, as the script of the page reads them.

    A row that only the program decided about is one that is not decided: the page would count it in
    the bound.
    """
    return [
        {
            **asdict(each),
            "row_id": str(audit.row_ids[row]),
            "given": audit.class_names[audit.given[row]],
            "label": "" if each.label is None else audit.class_names[each.label],
        }
        for row, each in saved.items()
        if not each.is_by_program
    ]
