import numpy as np
import pytest

from imae.metrics.retrieval import JUNK, evaluate, normalise, similarities
from imae.report.page import Compared, ranked_query, worst_queries, write_queries

QUERIES = np.array([[1.0, 0.0], [0.0, 1.0]])
GALLERY = np.array([[1.0, 0.1], [0.9, 0.3], [0.5, 0.5], [0.2, 1.0], [1.0, 0.0]])
IDS = np.array([7, 8, 7, 8, JUNK])
CAMERAS = np.array([1, 1, 2, 2, 1])


def rows(ids, cameras, picture=lambda _: None):
    return Compared(np.array(ids), np.array(cameras), picture)


@pytest.fixture
def found():
    return evaluate(QUERIES, GALLERY, [7, 8], IDS, [1, 3], CAMERAS)


def similarity(row):
    return similarities(normalise(QUERIES[[row]]), GALLERY)[0]


def test_the_ranking_is_that_of_the_protocol(found):
    queries, gallery = rows([7, 8], [1, 3]), rows(IDS, CAMERAS)
    first = ranked_query(found, queries, gallery, 0, similarity(0))
    # Row 0 is of the query's own camera, row 4 is junk.
    assert [(hit.row, hit.is_right) for hit in first.hits] == [(1, False), (2, True), (3, False)]
    assert [hit.rank for hit in first.hits] == [1, 2, 3]
    assert first.average_precision == 0.5
    second = ranked_query(found, queries, gallery, 1, similarity(1))
    assert [hit.row for hit in second.hits] == [3, 2, 1, 0]
    assert found.first_match.tolist() == [2, 1]


def test_the_worst_come_first_and_those_without_a_match_last():
    found = evaluate(QUERIES[[1, 0, 0]], GALLERY, [8, 9, 7], IDS, [3, 1, 1], CAMERAS)
    assert worst_queries(found) == [2, 0, 1]


def test_a_late_match_is_shown_behind_the_first_ten():
    gallery = np.stack([np.ones(15), np.linspace(0, 1, 15)], axis=1)
    ids = np.array([1] * 14 + [7])
    found = evaluate([[1.0, 0.0]], gallery, [7], ids, [0], np.ones(15, int))
    values = similarities(normalise([[1.0, 0.0]]), gallery)[0]
    query = ranked_query(found, rows([7], [0]), rows(ids, np.ones(15, int)), 0, values)
    assert len(query.hits) == 10
    assert query.late is not None
    assert query.late.rank == found.first_match[0] == 15


def page(found, tmp_path, *, picture):
    path = write_queries(
        found,
        rows([7, 8], [1, 3], lambda _: picture),
        rows(IDS, CAMERAS),
        similarity,
        tmp_path / "page.html",
        source="<script>alert(1)</script>",
        data="<b>faces</b>",
        date="2026-01-31",
    )
    return path.read_text()


def test_the_page_is_escaped_and_loads_nothing(found, tmp_path):
    text = page(found, tmp_path, picture="data:image/png;base64,AAAA")
    assert "<script" not in text
    assert "From &lt;script&gt;alert(1)&lt;/script&gt;, of <time>2026-01-31</time>." in text
    assert "<title>imae retrieval: &lt;b&gt;faces&lt;/b&gt;, 2026-01-31</title>" in text
    assert "<h1>&lt;b&gt;faces&lt;/b&gt;: queries" in text
    assert "default-src &#39;none&#39;" in text
    assert "img-src data:" in text
    assert text.count('src="data:image/png;base64,AAAA"') == 2
    assert text.index("Query 0:") < text.index("Query 1:")


@pytest.mark.parametrize(
    "picture",
    [
        'data:image/png;base64,AAAA"><script>alert(2)</script>',
        "javascript:alert(3)",
        "data:text/html;base64,AAAA",
        "https://example.org/a.png",
    ],
)
def test_an_address_that_is_not_an_embedded_image_is_refused(found, tmp_path, picture):
    with pytest.raises(ValueError, match="not an image"):
        page(found, tmp_path, picture=picture)
