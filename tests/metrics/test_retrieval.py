import math

import numpy as np
import pytest

from imae.errors import ArgumentError, DataError
from imae.metrics import retrieval
from imae.metrics.retrieval import (
    Protocol,
    evaluate,
    k_reciprocal_similarities,
    normalise,
    repeats,
    similarities,
    summarise,
)


def by_loops(similarity, query_ids, gallery_ids, query_cameras, gallery_cameras, ranks):
    """The protocol written down plainly."""
    precisions, firsts = [], []
    for query, row in enumerate(similarity):
        listed = []
        for index in sorted(range(len(row)), key=lambda index: (-row[index], index)):
            is_same = gallery_ids[index] == query_ids[query]
            is_own = is_same and gallery_cameras[index] == query_cameras[query]
            if not is_own and gallery_ids[index] != -1:
                listed.append(is_same)
        if not any(listed):
            continue
        hits, total = 0, 0.0
        for place, is_match in enumerate(listed, start=1):
            if is_match:
                hits += 1
                total += hits / place
        precisions.append(total / hits)
        firsts.append(listed.index(True) + 1)
    return (
        math.fsum(precisions) / len(precisions),
        {rank: sum(first <= rank for first in firsts) / len(firsts) for rank in ranks},
    )


def random_case(seed):
    draw = np.random.default_rng(seed)
    num_queries, num_gallery = draw.integers(1, 7), draw.integers(1, 40)
    has_ties = seed % 2 == 0
    similarity = draw.normal(size=(num_queries, num_gallery))
    if has_ties:
        similarity = np.round(similarity)
    ids = [draw.integers(-1, 5, size) for size in (num_queries, num_gallery)]
    ids[0] = np.abs(ids[0])  # a query has an identity; the gallery has junk and distractors
    cameras = [draw.integers(0, 1 + seed % 3, size) for size in (num_queries, num_gallery)]
    return similarity, ids[0], ids[1], cameras[0], cameras[1]


def has_match(case):
    _, query_ids, gallery_ids, query_cameras, gallery_cameras = case
    same = query_ids[:, None] == gallery_ids
    return bool((same & (query_cameras[:, None] != gallery_cameras)).any())


def test_equals_plain_loops_on_500_random_cases():
    tried = without_match = 0
    for seed in range(900):
        case = random_case(seed)
        if not has_match(case):
            continue
        tried += 1
        expected, expected_cmc = by_loops(*case, ranks=(1, 5, 50))
        similarity, query_ids, gallery_ids, query_cameras, gallery_cameras = case
        protocol = Protocol(query_ids, gallery_ids, query_cameras, gallery_cameras)
        found = summarise(protocol.ranks(0, similarity.copy()), (1, 5, 50))
        without_match += found.num_without_match
        assert found.mean_average_precision == pytest.approx(expected, abs=1e-12)
        assert found.cmc == pytest.approx(expected_cmc, abs=1e-12)
    assert tried >= 500
    assert without_match > 0


def test_features_with_negative_similarities_and_ties_equal_plain_loops():
    draw = np.random.default_rng(1)
    queries = draw.choice([-1.0, 1.0], (5, 16))  # norm 4: similarities are exact, with many ties
    gallery = draw.choice([-1.0, 1.0], (60, 16))
    ids = draw.integers(0, 4, 5), draw.integers(0, 6, 60)
    cameras = draw.integers(0, 2, 5), draw.integers(0, 2, 60)
    similarity = queries @ gallery.T / 16
    assert (similarity < 0).any()
    expected, expected_cmc = by_loops(similarity, *ids, *cameras, ranks=(1, 20))
    found = evaluate(queries, gallery, *ids, *cameras, ranks=(1, 20))
    assert found.mean_average_precision == pytest.approx(expected, abs=1e-12)
    assert found.cmc == pytest.approx(expected_cmc, abs=1e-12)


def test_small_blocks_give_the_same(monkeypatch):
    draw = np.random.default_rng(2)
    queries, gallery = draw.normal(size=(9, 4)), draw.normal(size=(50, 4))
    labels = draw.integers(0, 3, 9), draw.integers(0, 3, 50), np.zeros(9, int), np.ones(50, int)
    whole = evaluate(queries, gallery, *labels)
    monkeypatch.setattr(retrieval, "_BLOCK_ELEMENTS", 100)
    parts = evaluate(queries, gallery, *labels)
    np.testing.assert_array_equal(parts.average_precision, whole.average_precision)


def duplicated_case(seed, dtype, width):
    """Features with repeated rows, and their similarities with exact ties, rounded once."""
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(draw.integers(1, 12), width)).astype(dtype)
    rows = [draw.integers(0, len(features), size) for size in draw.integers(2, 60, 2)]
    unit = normalise(features.astype(np.float64))
    similarity = np.round(unit @ unit.T, 6)
    ids = [draw.integers(0, 4, len(each)) for each in rows]
    cameras = [draw.integers(0, 3, len(each)) for each in rows]
    case = similarity[np.ix_(*rows)], *ids, *cameras
    return features[rows[0]], features[rows[1]], case


@pytest.mark.parametrize("block", [1, 37, 5000, 2**26])
@pytest.mark.parametrize("width", [1, 3, 64, 1023, 2048])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_repeated_rows_tie_whatever_their_position(monkeypatch, dtype, width, block):
    monkeypatch.setattr(retrieval, "_BLOCK_ELEMENTS", block)
    for seed in range(8):
        queries, gallery, case = duplicated_case(seed, dtype, width)
        if not has_match(case):
            continue
        expected, expected_cmc = by_loops(*case, ranks=(1, 5))
        found = evaluate(queries, gallery, *case[1:], ranks=(1, 5))
        assert found.mean_average_precision == pytest.approx(expected, abs=1e-12)
        assert found.cmc == pytest.approx(expected_cmc, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_of_copies_is_ranked_first(dtype):
    draw = np.random.default_rng(0)
    for _ in range(50):
        query, row = draw.normal(size=(2, 1, 1024)).astype(dtype)
        number = int(draw.integers(2, 40))
        found = evaluate(
            query,
            np.repeat(row, number, 0),
            [1],
            [1] + [5] * (number - 1),
            [0],
            np.ones(number, int),
        )
        assert found.first_match[0] == 1


def test_identical_queries_have_the_same_ranks_in_every_block(monkeypatch):
    draw = np.random.default_rng(6)
    base = draw.normal(size=(7, 1024)).astype(np.float32)
    source = draw.integers(0, 7, 40)
    gallery = base[:1] + 1e-7 * draw.normal(size=(300, 1024)).astype(np.float32)  # nearly tied
    for block in (600, 2**26):
        monkeypatch.setattr(retrieval, "_BLOCK_ELEMENTS", block)
        ids = np.zeros(40, int), np.arange(300) % 5, np.zeros(40, int), np.ones(300, int)
        found = evaluate(base[source], gallery, *ids).average_precision
        for each in range(7):
            assert len(set(found[source == each])) == 1


def test_repeats_are_rows_of_equal_numbers(monkeypatch):
    signs = np.random.default_rng(7).choice([-1.0, 1.0], (500, 6))  # 64 different rows
    signs[::3] *= 0.0  # some zeros are negative
    for rows in (signs, signs.astype(np.float32), np.asfortranarray(signs), signs[:, ::2]):
        first = {}
        expected = [first.setdefault(tuple(row), at) for at, row in enumerate(rows.tolist())]
        for block in (8, 2**26):
            monkeypatch.setattr(retrieval, "_BLOCK_ELEMENTS", block)
            again, found = repeats(rows)
            assert dict(zip(again.tolist(), found.tolist(), strict=True)) == {
                at: row for at, row in enumerate(expected) if at != row
            }


def test_rows_whose_sums_are_the_same_by_chance_are_compared(monkeypatch):
    monkeypatch.setattr(np, "einsum", lambda *_: 0)
    again, first = repeats(np.array([[1.0], [2.0], [1.0], [3.0], [2.0], [1.0]]))
    assert (again.tolist(), first.tolist()) == ([2, 4, 5], [0, 1, 0])


def test_a_memory_mapped_gallery_is_read_in_blocks(tmp_path, monkeypatch):
    draw = np.random.default_rng(3)
    gallery = draw.normal(size=(64, 8)).astype(np.float32)
    np.save(tmp_path / "gallery.npy", gallery)
    mapped = np.load(tmp_path / "gallery.npy", mmap_mode="r")
    sizes = []
    plain = retrieval.normalise
    monkeypatch.setattr(retrieval, "_BLOCK_ELEMENTS", 256)
    monkeypatch.setattr(
        retrieval,
        "normalise",
        lambda rows, *names, **options: sizes.append(len(rows)) or plain(rows, *names, **options),
    )
    labels = np.zeros(1, int), np.arange(64) % 2, np.zeros(1, int), np.ones(64, int)
    assert evaluate(gallery[:1], mapped, *labels).cmc[1] == 1.0
    assert max(sizes) == 8


def test_the_summary_by_hand():
    found = summarise([np.array([1, 4]), np.array([3]), np.array([], np.int64)], (1, 3))
    assert found.mean_average_precision == pytest.approx(((1 + 2 / 4) / 2 + 1 / 3) / 2)
    assert found.cmc == {1: 0.5, 3: 1.0}
    assert found.num_without_match == 1
    assert math.isnan(found.average_precision[2])


def test_normalised_rows_have_norm_one_at_extreme_scales():
    rows = np.array([[3e-30, 4e-30], [3e30, 4e30]], np.float32)
    np.testing.assert_allclose(normalise(rows), [[0.6, 0.8], [0.6, 0.8]], rtol=1e-6)
    assert normalise(rows).dtype == np.float32


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"query_features": [[1.0, np.nan]]}, DataError, "query_features: row 0 has a number"),
        ({"gallery_features": [[1.0, 0], [0, 0]]}, DataError, "row 1 is all zeros"),
        ({"gallery_features": [[1.0], [2.0]]}, ArgumentError, "must have the same length"),
        ({"gallery_features": np.zeros((0, 2))}, ArgumentError, "with rows"),
        ({"query_features": [["a", "b"]]}, ArgumentError, "must hold numbers"),
        ({"gallery_ids": [7]}, ArgumentError, "gallery_ids must be 2 integers"),
        ({"query_cameras": [0.5]}, ArgumentError, "query_cameras must be 1 integers"),
        ({"query_ids": [9]}, DataError, "no query has its identity"),
        ({"ranks": (0,)}, ArgumentError, "ranks must be at least 1"),
    ],
)
def test_mistakes_are_one_line(change, error, message):
    given = {
        "query_features": [[1.0, 0.0]],
        "gallery_features": [[1.0, 0.0], [0.0, 1.0]],
        "query_ids": [7],
        "gallery_ids": [7, 8],
        "query_cameras": [1],
        "gallery_cameras": [2, 2],
    }
    assert evaluate(**given).cmc[1] == 1.0
    with pytest.raises(error, match=message):
        evaluate(**{**given, **change})


def reranked_by_sets(queries, gallery, k1, k2, mixture):
    """The publication's sets, written with Python sets."""
    both = np.concatenate([queries, gallery])
    total = len(both)
    distance = np.array([[2 - 2 * float(a @ b) for b in both] for a in both])
    distance = distance / distance.max(axis=1, keepdims=True)
    order = [sorted(range(total), key=lambda other: (distance[row][other], other))
             for row in range(total)]  # fmt: skip

    def mutual(row, k):
        return {other for other in order[row][: k + 1] if row in order[other][: k + 1]}

    encoding = np.zeros((total, total))
    for row in range(total):
        near = mutual(row, k1)
        wide = set(near)
        for other in near:
            others = mutual(other, round(k1 / 2))
            if len(others & near) > 2 / 3 * len(others):
                wide |= others
        weights = {other: math.exp(-distance[row][other]) for other in wide}
        for other, weight in weights.items():
            encoding[row][other] = weight / sum(weights.values())
    averaged = np.array([encoding[order[row][:k2]].mean(axis=0) for row in range(total)])
    result = np.zeros((len(queries), len(gallery)))
    for row in range(len(queries)):
        for column in range(len(gallery)):
            a, b = averaged[row], averaged[len(queries) + column]
            jaccard = 1 - np.minimum(a, b).sum() / np.maximum(a, b).sum()
            own = distance[row][len(queries) + column]
            result[row][column] = -((1 - mixture) * jaccard + mixture * own)
    return result


def test_reranking_equals_the_publication_written_with_sets():
    draw = np.random.default_rng(4)
    queries, gallery = normalise(draw.normal(size=(4, 6))), normalise(draw.normal(size=(21, 6)))
    expected = reranked_by_sets(queries, gallery, 6, 3, 0.3)
    found = k_reciprocal_similarities(queries, gallery, k1=6, k2=3)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_reranking_needs_enough_rows():
    with pytest.raises(ArgumentError, match="below the number of rows 3"):
        k_reciprocal_similarities(np.eye(3)[:1], np.eye(3)[1:])


def test_reranking_rows_that_are_all_alike_tells_them_apart_no_better():
    alike = np.tile([1.0, 0.0], (27, 1))
    labels = np.zeros(2, int), np.arange(25) % 5, np.zeros(2, int), np.ones(25, int)
    plain = evaluate(alike[:2], alike[2:], *labels)
    reranked = evaluate(alike[:2], alike[2:], *labels, rerank=True)
    assert reranked.mean_average_precision == plain.mean_average_precision < 1
    assert np.array_equal(reranked.cmc, plain.cmc)


def test_reranking_is_an_option_of_the_evaluation():
    draw = np.random.default_rng(5)
    queries, gallery = draw.normal(size=(3, 6)), draw.normal(size=(30, 6))
    labels = np.arange(3), np.arange(30) % 3, np.zeros(3, int), np.ones(30, int)
    plain, reranked = evaluate(queries, gallery, *labels), None
    reranked = evaluate(queries, gallery, *labels, rerank=True)
    assert reranked.mean_average_precision != plain.mean_average_precision
    assert similarities(normalise(queries), gallery).shape == (3, 30)
