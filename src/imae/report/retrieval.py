"""The page of retrieval: queries and their ranked gallery, the worst queries first."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from imae.metrics.retrieval import JUNK, Retrieval
from imae.records.files import whole_file
from imae.report.page import build_environment, policy

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
    """One query and the first rows of its ranking; ``late`` is the first right row, if not there.

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
    title: str,
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
        title: What was measured.
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
        title=title,
        found=found,
        queries=shown,
        total=len(found.first_match),
        has_cameras=has_cameras,
    )
    with whole_file(out) as file:
        file.write(str(page).encode("utf-8"))
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
