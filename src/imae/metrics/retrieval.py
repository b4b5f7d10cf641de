"""Retrieval of identities: mean average precision and cumulative matching, exact also with ties."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from imae.errors import ArgumentError, DataError, check_integer

JUNK = -1  # identity of gallery rows that count neither as right nor as wrong
_BLOCK_ELEMENTS = 2**26  # similarities held at once: 256 MB in float32

Features = NDArray[np.float32] | NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Retrieval:
    """How well a gallery was ranked for a set of queries.

    Args:
        mean_average_precision: Mean of ``average_precision`` over the queries that have a match.
        cmc: For each rank k, the share of these queries with a match among the first k.
        average_precision: Average precision of every query, shape (Q,); NaN without a match.
        first_match: Rank of the first match of every query, from 1, shape (Q,); 0 without one.
    """

    mean_average_precision: float
    cmc: dict[int, float]
    average_precision: NDArray[np.float64]
    first_match: NDArray[np.int64]

    @property
    def num_without_match(self) -> int:
        """Queries whose identity is not in the gallery under another camera."""
        return int((self.first_match == 0).sum())


def evaluate(
    query_features: ArrayLike,
    gallery_features: ArrayLike,
    query_ids: ArrayLike,
    gallery_ids: ArrayLike,
    query_cameras: ArrayLike,
    gallery_cameras: ArrayLike,
    ranks: Sequence[int] = (1, 5, 10, 20),
    *,
    rerank: bool = False,
) -> Retrieval:
    """Ranks the gallery by cosine similarity for every query, by the Market-1501 / MARS protocol.

    Gallery rows of the query's own identity and camera are removed for that query, and so are junk
    rows, whose identity is -1. Distractors (any identity that no query has) stay and are wrong.
    Rows of equal similarity, such as identical ones, keep the order of the gallery; queries that
    are identical have the same similarities. With relevant rows at ranks r_1 < ... < r_n::

        AP = (1/n) sum_i i / r_i,      CMC(k) = share of queries with r_1 <= k

    A query without a relevant row counts in neither mean. The gallery may be a memory-mapped array:
    a block of queries is compared with a block of rows at a time, in about 0.6 GB of memory in
    float32 and 1.1 GB in float64, for a gallery of any length up to tens of millions of rows.

    Args:
        query_features: Shape (Q, E), finite, no row of zeros; normalised here.
        gallery_features: Shape (G, E), likewise.
        query_ids: Identities, integers, shape (Q,).
        gallery_ids: Identities, integers, shape (G,).
        query_cameras: Cameras, integers, shape (Q,).
        gallery_cameras: Cameras, integers, shape (G,).
        ranks: Ranks k of the CMC; a rank beyond the gallery counts all of it.
        rerank: Whether to rank by ``k_reciprocal_similarities`` instead, in memory for
            (Q + G)^2 numbers.

    Raises:
        ArgumentError: If shapes do not match or a rank is below 1.
        DataError: If a feature is not finite or a row is zero, or no query has a match.

    Examples:
        >>> found = evaluate([[1, 0]], [[0, 1], [1, 0.1]], [7], [7, 8], [1], [2, 2])
        >>> found.mean_average_precision, found.cmc[1], found.cmc[5]
        (0.5, 0.0, 1.0)

    Reference:
        Zheng et al., "Scalable person re-identification: a benchmark", ICCV 2015;
        Zheng et al., "MARS: a video benchmark for large-scale person re-identification", ECCV 2016.
    """
    given = _as_features(query_features, "query_features")
    queries = normalise(given, "query_features")
    gallery = _as_features(gallery_features, "gallery_features")
    if queries.shape[1] != gallery.shape[1]:
        raise ArgumentError(
            f"features must have the same length: those of queries have {queries.shape[1]} "
            f"numbers, those of the gallery {gallery.shape[1]}"
        )
    protocol = Protocol(
        _as_numbers(query_ids, "query_ids", len(queries)),
        _as_numbers(gallery_ids, "gallery_ids", len(gallery)),
        _as_numbers(query_cameras, "query_cameras", len(queries)),
        _as_numbers(gallery_cameras, "gallery_cameras", len(gallery)),
    )
    if rerank:
        return summarise(protocol.ranks(0, k_reciprocal_similarities(queries, gallery)), ranks)
    source = np.arange(len(queries))
    again, first = repeats(given)
    source[again] = first
    distinct, source = np.unique(source, return_inverse=True)
    size, equal = max(1, _BLOCK_ELEMENTS // len(gallery)), repeats(gallery)
    found: dict[int, NDArray[np.int64]] = {}
    for start in range(0, len(distinct), size):
        block = similarities(queries[distinct[start : start + size]], gallery, equal)
        for query in np.flatnonzero((start <= source) & (source < start + size)).tolist():
            (found[query],) = protocol.ranks(query, block[[source[query] - start]])
    return summarise([found[query] for query in range(len(queries))], ranks)


class Protocol:
    """Which gallery rows are right, wrong or left out for each query.

    Args:
        query_ids: Identities, shape (Q,).
        gallery_ids: Identities, shape (G,).
        query_cameras: Cameras, shape (Q,).
        gallery_cameras: Cameras, shape (G,).
    """

    def __init__(
        self,
        query_ids: NDArray[np.int64],
        gallery_ids: NDArray[np.int64],
        query_cameras: NDArray[np.int64],
        gallery_cameras: NDArray[np.int64],
    ) -> None:
        self._is_junk, self._query_cameras = query_ids == JUNK, query_cameras
        self._by_id = np.argsort(gallery_ids, kind="stable")
        self._cameras_by_id = gallery_cameras[self._by_id]
        sorted_ids = gallery_ids[self._by_id]
        self._low = np.searchsorted(sorted_ids, query_ids, side="left")
        self._high = np.searchsorted(sorted_ids, query_ids, side="right")
        self._junk = np.flatnonzero(gallery_ids == JUNK)

    def ranks(self, first_query: int, block: Features) -> list[NDArray[np.int64]]:
        """Ranks of the relevant rows of each query of a block, ascending, from 1.

        Args:
            first_query: Number of the query that the first row of the block belongs to.
            block: Similarities, shape (B, G), finite; overwritten where rows are left out.
        """
        block[:, self._junk] = -np.inf
        return [self._ranks(first_query + row, block[row]) for row in range(len(block))]

    def _ranks(self, query: int, similarity: Features) -> NDArray[np.int64]:
        own = slice(self._low[query], self._high[query])
        same = self._by_id[own]  # ascending, because the sort was stable
        is_own = self._cameras_by_id[own] == self._query_cameras[query]
        similarity[same[is_own]] = -np.inf
        relevant = same[:0] if self._is_junk[query] else same[~is_own]
        return _stable_ranks(similarity, relevant)


def _stable_ranks(similarity: Features, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ranks of some rows, from 1, if all are sorted by falling similarity and then by position.

    One sort of the values and a search for the wanted ones is much cheaper than sorting positions.
    """
    if not len(wanted):
        return np.zeros(0, np.int64)
    ordered = similarity.copy()
    ordered.sort()
    values = similarity[wanted]
    not_above = ordered.searchsorted(values, side="right")
    ranks = (len(ordered) + 1) - not_above
    is_tied = not_above - ordered.searchsorted(values) > 1
    if is_tied.any():
        for value in np.unique(values[is_tied]):
            equal = np.flatnonzero(similarity == value)
            chosen = values == value
            ranks[chosen] += equal.searchsorted(wanted[chosen])
    ranks.sort()
    return ranks


def summarise(found: Sequence[NDArray[np.int64]], ranks: Sequence[int]) -> Retrieval:
    """Average precision and CMC from the ranks of the relevant rows of every query.

    Raises:
        ArgumentError: If a rank is below 1.
        DataError: If no query has a relevant row.
    """
    for rank in ranks:
        check_integer("ranks", rank, low=1)
    number = np.array([len(each) for each in found])
    has_match = number > 0
    if not has_match.any():
        raise DataError(
            "no query has its identity in the gallery under another camera: nothing to measure"
        )
    matches, of_all = number[has_match], np.concatenate(found)
    start = np.cumsum(matches) - matches
    place = np.arange(1, len(of_all) + 1) - np.repeat(start, matches)
    precision, first = np.full(len(found), np.nan), np.zeros(len(found), np.int64)
    precision[has_match] = np.add.reduceat(place / of_all, start) / matches
    first[has_match] = of_all[start]
    cmc = {int(rank): float(np.mean(first[has_match] <= rank)) for rank in ranks}
    return Retrieval(float(precision[has_match].mean()), cmc, precision, first)


Repeats = tuple[NDArray[np.int64], NDArray[np.int64]]


def similarities(queries: Features, gallery: Features, equal: Repeats | None = None) -> Features:
    """Cosine similarity of normalised queries with every gallery row, shape (B, G).

    The gallery is normalised a block at a time, so that a memory-mapped one is never held whole.
    A product rounds by the position of a row, so rows that repeat others get the others' results.

    Args:
        queries: Shape (B, E), normalised.
        gallery: Shape (G, E).
        equal: What ``repeats`` finds in the gallery, if that is known.

    Raises:
        DataError: If a gallery feature is not finite or a row is zero.
    """
    result = np.empty((len(queries), len(gallery)), np.result_type(queries, gallery))
    for rows in _blocks(gallery):
        unit = normalise(gallery[rows], "gallery_features", first_row=rows.start)
        np.matmul(queries, unit.T, out=result[:, rows])
    again, first = repeats(gallery) if equal is None else equal
    for row in result if len(again) else ():
        row[again] = row[first]
    return result


def repeats(features: Features) -> Repeats:
    """The rows that repeat an earlier one, and the first row that each of them repeats.

    Rows are compared only if sums over their bits are the same, so one pass over the features is
    nearly all that it takes.

    Args:
        features: Shape (N, E); may be memory-mapped.

    Examples:
        >>> again, first = repeats(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
        >>> again.tolist(), first.tolist()
        ([2], [0])
    """
    number = features.shape[1] * features.dtype.itemsize // 4
    factors = np.random.default_rng(0).integers(2**64, size=number, dtype=np.uint64)
    sums = np.empty(len(features), np.uint64)
    for rows in _blocks(features):
        bits = np.add(features[rows], 0, order="C").view(np.uint32)  # -0.0 becomes 0.0
        sums[rows] = np.einsum("ij,j->i", bits, factors)  # modulo 2^64
    order = np.argsort(sums, kind="stable")
    follows = np.flatnonzero(sums[order[1:]] == sums[order[:-1]]) + 1
    again, first, seen, last = [], [], {}, -1
    for place in follows.tolist():
        row = int(order[place])
        if place != last + 1:  # another sum
            start = int(order[place - 1])
            seen = {(features[start] + 0).tobytes(): start}
        same = seen.setdefault((features[row] + 0).tobytes(), row)
        if same != row:
            again.append(row)
            first.append(same)
        last = place
    return np.array(again, np.int64), np.array(first, np.int64)


def _blocks(rows: Features) -> list[slice]:
    """Rows that are read at once."""
    size = max(1, _BLOCK_ELEMENTS // 4 // rows.shape[1])
    return [slice(start, start + size) for start in range(0, len(rows), size)]


def normalise(features: ArrayLike, name: str = "features", *, first_row: int = 0) -> Features:
    """Features scaled to a Euclidean norm of 1, shape (N, E); float32 stays float32.

    Args:
        features: Shape (N, E).
        name: For messages.
        first_row: Number of the first row, for messages.

    Raises:
        ArgumentError: If the shape is wrong.
        DataError: If a feature is not finite or a row is zero.

    Examples:
        >>> normalise([[3.0, 4.0]])
        array([[0.6, 0.8]])
    """
    rows = _as_features(features, name)
    # Scaled by the largest entry first, so that squares neither overflow nor vanish.
    largest = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
    bad = ~np.isfinite(largest[:, 0])
    if bad.any():
        raise DataError(
            f"{name}: row {first_row + int(bad.argmax())} has a number that is not finite"
        )
    if (largest == 0).any():
        row = first_row + int((largest[:, 0] == 0).argmax())
        raise DataError(f"{name}: row {row} is all zeros, so it has no direction to compare")
    scaled = rows / largest
    unit: Features = scaled / np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    return unit


def k_reciprocal_similarities(
    query_features: ArrayLike,
    gallery_features: ArrayLike,
    *,
    k1: int = 20,
    k2: int = 6,
    mixture: float = 0.3,
) -> NDArray[np.float64]:
    """Similarities that compare neighbourhoods as well as rows, shape (Q, G).

    Two rows are alike if their neighbourhoods are: the Jaccard distance of the k-reciprocal
    neighbour sets, mixed with the original distance. Needs memory for (Q + G)^2 numbers.

    Args:
        query_features: Shape (Q, E).
        gallery_features: Shape (G, E).
        k1: Neighbours that must be mutual.
        k2: Neighbours whose encodings are averaged.
        mixture: Share of the original distance, in [0, 1].

    Raises:
        ArgumentError: If a number is out of range or there are fewer rows than neighbours.

    Reference:
        Zhong et al., "Re-ranking person re-identification with k-reciprocal encoding", CVPR 2017.
    """
    queries = normalise(query_features, "query_features")
    both = np.concatenate([queries, normalise(gallery_features, "gallery_features")])
    check_integer("k2", k2, low=1)
    if not k2 <= k1 < len(both):
        raise ArgumentError(
            f"k1 must be at least k2 = {k2} and below the number of rows {len(both)}, got {k1}"
        )
    distance = np.maximum(0.0, 2.0 - 2.0 * (both @ both.T).astype(np.float64))
    farthest = distance.max(axis=1, keepdims=True)
    distance /= np.where(farthest > 0, farthest, 1)  # 0 where all rows are the same
    order = np.argsort(distance, axis=1, kind="stable")[:, : k1 + 1]
    encoding = np.zeros_like(distance)
    for row in range(len(both)):
        mutual = _expanded(order, row, k1)
        weight = np.exp(-distance[row, mutual])
        encoding[row, mutual] = weight / weight.sum()
    if k2 > 1:
        encoding = np.stack([encoding[order[row, :k2]].mean(axis=0) for row in range(len(both))])
    result = np.empty((len(queries), len(both) - len(queries)))
    for row in range(len(queries)):
        overlap = np.minimum(encoding[row], encoding[len(queries) :]).sum(axis=1)
        jaccard = 1.0 - overlap / (2.0 - overlap)
        own = distance[row, len(queries) :]
        result[row] = -((1 - mixture) * jaccard + mixture * own)
    return result


def _mutual(order: NDArray[np.int64], row: int, k: int) -> NDArray[np.int64]:
    forward = order[row, : k + 1]
    mutual: NDArray[np.int64] = forward[(order[forward, : k + 1] == row).any(axis=1)]
    return mutual


def _expanded(order: NDArray[np.int64], row: int, k: int) -> NDArray[np.int64]:
    """The mutual neighbours, and those of each that shares two thirds of its own with them."""
    mutual = _mutual(order, row, k)
    expanded = mutual
    for candidate in mutual:
        others = _mutual(order, candidate, round(k / 2))
        if len(np.intersect1d(others, mutual)) > 2 / 3 * len(others):
            expanded = np.union1d(expanded, others)
    return expanded


def _as_features(features: ArrayLike, name: str) -> Features:
    rows = features if isinstance(features, np.ndarray) else np.asarray(features)
    if rows.dtype not in (np.float32, np.float64):
        if rows.dtype.kind not in "fiu":
            raise ArgumentError(f"{name} must hold numbers, got {rows.dtype}")
        rows = rows.astype(np.float32 if rows.dtype == np.float16 else np.float64)
    if rows.ndim != 2 or not rows.shape[0] or not rows.shape[1]:
        raise ArgumentError(f"{name} must have shape (N, E) with rows, got shape {rows.shape}")
    return rows


def _as_numbers(values: ArrayLike, name: str, length: int) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.shape != (length,):
        raise ArgumentError(
            f"{name} must be {length} integers, one for each row of features, got "
            f"{array.dtype} of shape {array.shape}"
        )
    return array.astype(np.int64)
