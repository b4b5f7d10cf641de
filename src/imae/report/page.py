"""Pages of one file that need no network: of runs, and of queries with their ranked gallery."""

import base64
import functools
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from imae.errors import import_extra
from imae.metrics.retrieval import JUNK, Retrieval
from imae.records.files import printable, write_file
from imae.records.measures import HELD_OUT, TEST, find_column
from imae.report import chart
from imae.report.chart import Chart
from imae.report.comparison import compare, group, table
from imae.report.diagnosis import Previewer, relative_link
from imae.report.dynamics import WIDE_X_AXIS, X_AXIS, Y_AXIS, Labels, read_labels
from imae.report.formats import UNKNOWN, duration, percent, shorten, summary_text, thin, time_text
from imae.report.read import RunRecord, flatten, shared

_NUM_NUMBERS = 20  # rows of the table behind a figure
_NUM_NAMED = 4  # data sets that the title lists
_VALUE_LENGTH = 300  # characters of a setting
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_IMAGE = re.compile(r"data:image/(?:png|jpeg);base64,[A-Za-z0-9+/]+=*")


def write_report(
    runs: Sequence[RunRecord],
    out: str | os.PathLike[str],
    *,
    pictures: Previewer | None = None,
) -> Path:
    """Writes one HTML page about these runs and returns its path.

    The page holds its own style, script and figures and loads nothing: it opens from a disk
    and without a network. The same runs give the same bytes.

    Args:
        runs: Records of run folders, finished or not.
        out: The file to write.
        pictures: Makes the pictures of suspect rows; without it they are shown by their ids.

    Raises:
        DataError: If the labels or the dynamics of a run are damaged.
        MissingExtraError: If jinja2 is not installed.
    """
    page = render(runs, out=out, pictures=pictures)
    write_file(out, page)
    return Path(out)


def render(
    runs: Sequence[RunRecord],
    *,
    out: str | os.PathLike[str] | None = None,
    pictures: Previewer | None = None,
) -> str:
    """The page as text; see ``write_report``. Links need to know where it will be, ``out``."""
    environment = build_environment("imae.report")
    labels = {run.folder: read_labels(run.folder) for run in runs}
    whole = table(runs)
    settings = [
        compare(alike, whole, labels, pictures=pictures)
        for alike in group(runs, lambda run: run.setting).values()
    ]
    return str(
        environment.get_template("page.html").render(
            policy=policy(
                environment,
                styles=("page.css",),
                scripts=("page.js",),
                further=("img-src data:",),
            ),
            date=_date(runs),
            link=lambda target: relative_link(target, out),
            chart=chart,
            x_axis=X_AXIS,
            wide_x_axis=WIDE_X_AXIS,
            y_axis=Y_AXIS,
            table=whole,
            summary_text=summary_text,
            time_text=time_text,
            settings=settings,
            data=_listed(list(dict.fromkeys(setting.data for setting in settings))),
            num_methods=len({run.method for run in runs}),
            runs=_runs(runs, labels),
            shared_settings=_sheet(shared([run.config for run in runs])),
            shared_environment=_sheet(shared([run.environment for run in runs])),
            numbers=_numbers,
        )
    )


@functools.cache
def build_environment(*packages: str) -> Any:
    """The template engine for pages: every string is escaped and made printable.

    Args:
        packages: Packages with a folder ``templates``; the first that has a template is used.

    Raises:
        MissingExtraError: If jinja2 is not installed.
    """
    jinja2 = import_extra("jinja2", extra="report")
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,  # the hashes are of the files as they are
        finalize=_shown,
    )
    environment.filters.update(percent=percent, duration=duration, image=_image, local=_local)
    return environment


def _image(address: str) -> str:
    """The address of an image, which must hold the image itself."""
    if not _IMAGE.fullmatch(address):
        raise ValueError(f"not an image: {address[:40]!r}")
    return address


def _local(path: str) -> str:
    """A link to a file beside the page; never a URL scheme, whatever the name."""
    return "./" + quote(path)


def _date(runs: Sequence[RunRecord]) -> str | None:
    """The day on which the last of the runs began, if it is recorded."""
    days = [str(run.environment.get("started", ""))[:10] for run in runs]
    return max((day for day in days if _DAY.fullmatch(day)), default=None)


def _listed(names: Sequence[str]) -> str:
    """The names as a phrase, or the first of them and how many more there are."""
    if len(names) > _NUM_NAMED:
        return f"{', '.join(names[: _NUM_NAMED - 1])} and {len(names) - _NUM_NAMED + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _shown(value: object) -> object:
    # Every string that the template prints passes through here; values marked as safe stay so.
    return printable(value) if type(value) is str else value


def policy(
    environment: Any,
    *,
    styles: Sequence[str],
    scripts: Sequence[str],
    further: Sequence[str] = (),
) -> str:
    """The content security policy of a page: nothing but its own styles and scripts.

    Args:
        environment: From ``build_environment``.
        styles: Templates, each the whole content of a ``style`` element.
        scripts: Templates, each the whole content of a ``script`` element.
        further: Further directives, such as ``img-src data:``.
    """
    allowed = ["default-src 'none'"]
    for directive, names in (("style-src", styles), ("script-src", scripts)):
        texts = [environment.loader.get_source(environment, name)[0] for name in names]
        digests = [hashlib.sha256(text.encode("utf-8")).digest() for text in texts]
        hashes = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
        allowed.append(" ".join([directive, *hashes]))
    return "; ".join([*allowed, *further, "base-uri 'none'", "form-action 'none'"])


def _runs(
    runs: Sequence[RunRecord], labels: Mapping[Path, Labels | None]
) -> list[dict[str, object]]:
    names = [run.name for run in runs]
    common = shared([run.config for run in runs])
    machine = shared([run.environment for run in runs])
    return [
        {
            "name": str(run.folder) if names.count(run.name) > 1 else run.name,
            "record": run,
            "own_settings": _sheet(flatten(run.config), without=common),
            "own_environment": _sheet(flatten(run.environment), without=machine),
            **_state(run, labels[run.folder]),
        }
        for run in runs
    ]


def _state(run: RunRecord, labels: Labels | None) -> dict[str, object]:
    last = run.history[-1] if run.history else {}
    progress = run.progress or {}
    way = [str(progress[key]) for key in ("step", "total_steps") if key in progress]
    return {
        "message": progress.get("message") or (f"step {' of '.join(way)}" if way else ""),
        "step": f"{last['step']:,}" if "step" in last else UNKNOWN,
        "test": last.get(TEST.key),
        "held": last.get(HELD_OUT.key),
        "chosen": run.value(find_column("chosen_test")),
        "seconds": (run.result or {}).get("seconds", last.get("seconds")),
        "num_rows": UNKNOWN if labels is None else f"{len(labels.given):,}",
        "wrong": None if labels is None else labels.wrong_share,
    }


def _sheet(flat: Mapping[str, str], *, without: Mapping[str, str] | None = None) -> dict[str, str]:
    return {
        name: shorten(value, limit=_VALUE_LENGTH)
        for name, value in flat.items()
        if name not in (without or {})
    }


def _numbers(drawn: Chart) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the table behind a chart."""
    places = thin(sorted({x for line in drawn.series for x in line.x}), limit=_NUM_NUMBERS)
    columns = [dict(zip(line.x, line.y, strict=True)) for line in drawn.series]
    rows = [
        [
            f"{place:,.0f}",
            *(UNKNOWN if (y := column.get(place)) is None else f"{y:.2f}" for column in columns),
        ]
        for place in places
    ]
    return [drawn.x_label, *(line.label for line in drawn.series)], rows


NUM_QUERIES = 40
_NUM_RANKS = 10


@dataclass(frozen=True, eq=False)
class Compared:
    """Rows that are compared: queries or a gallery.

    Args:
        ids: Identity of each row, shape (N,).
        cameras: Camera of each row, shape (N,).
        picture: The picture of a row as a ``data:`` address, or None if it has none.
    """

    ids: NDArray[np.int64]
    cameras: NDArray[np.int64]
    picture: Callable[[int], str | None]


@dataclass(frozen=True)
class Hit:
    """One gallery row as the page shows it."""

    rank: int
    row: int
    identity: int
    camera: int
    is_right: bool
    similarity: float
    picture: str | None


@dataclass(frozen=True)
class Query:
    """One query and the first rows of its ranking; ``late`` is the first right row, if it is later.

    ``average_precision`` is None for a query without a right row in the gallery.
    """

    row: int
    identity: int
    camera: int
    average_precision: float | None
    hits: tuple[Hit, ...]
    late: Hit | None
    picture: str | None


def write_queries(
    found: Retrieval,
    queries: Compared,
    gallery: Compared,
    similarity: Callable[[int], NDArray[np.floating]],
    out: str | os.PathLike[str],
    *,
    source: str,
    data: str,
    date: str | None,
    has_cameras: bool = True,
) -> Path:
    """Writes one HTML page with the worst queries and how the gallery was ranked for them.

    The page is one file that loads nothing. Every string is escaped.

    Args:
        found: How well the gallery was ranked.
        queries: The queries.
        gallery: The gallery.
        similarity: Similarities of a query to every gallery row, shape (G,), by its number.
        out: The file to write.
        source: What was measured, such as ``"the run first"``.
        data: Name of the data.
        date: Day on which the run began, or the features were written, if it is known.
        has_cameras: Whether cameras mean something and are shown.

    Raises:
        MissingExtraError: If jinja2 is not installed.
    """
    shown = [
        ranked_query(found, queries, gallery, row, similarity(row))
        for row in worst_queries(found)[:NUM_QUERIES]
    ]
    environment = build_environment("imae.report")
    page = environment.get_template("queries.html").render(
        policy=policy(
            environment,
            styles=("page.css", "queries.css"),
            scripts=(),
            further=("img-src data:",),
        ),
        source=source,
        data=data,
        date=date,
        found=found,
        queries=shown,
        total=len(found.first_match),
        has_cameras=has_cameras,
    )
    write_file(out, str(page))
    return Path(out)


def worst_queries(found: Retrieval) -> list[int]:
    """Queries by rising average precision, those without a match last; ties by their number."""
    order: list[int] = np.argsort(found.average_precision, kind="stable").tolist()  # NaN comes last
    return order


def ranked_query(
    found: Retrieval,
    queries: Compared,
    gallery: Compared,
    row: int,
    similarity: NDArray[np.floating],
) -> Query:
    """A query with the first rows of its ranking, by the protocol of ``imae.metrics.retrieval``.

    Args:
        found: How well the gallery was ranked.
        queries: The queries.
        gallery: The gallery.
        row: Number of the query.
        similarity: Its similarity to every gallery row, shape (G,).
    """
    identity, camera = queries.ids[row], queries.cameras[row]
    is_same = gallery.ids == identity
    counts = (gallery.ids != JUNK) & ~(is_same & (gallery.cameras == camera))
    kept = np.flatnonzero(counts)
    order = kept[np.argsort(-similarity[kept], kind="stable")]
    is_right = is_same[order] & (identity != JUNK)

    def hit(place: int) -> Hit:
        one = int(order[place])
        return Hit(
            rank=place + 1,
            row=one,
            identity=int(gallery.ids[one]),
            camera=int(gallery.cameras[one]),
            is_right=bool(is_right[place]),
            similarity=float(similarity[one]),
            picture=gallery.picture(one),
        )

    first = int(is_right.argmax()) if is_right.any() else None
    precision = float(found.average_precision[row])
    return Query(
        row=row,
        identity=int(identity),
        camera=int(camera),
        average_precision=None if np.isnan(precision) else precision,
        hits=tuple(hit(place) for place in range(min(_NUM_RANKS, len(order)))),
        late=hit(first) if first is not None and first >= _NUM_RANKS else None,
        picture=queries.picture(row),
    )
