"""Ranking and scoring at the size of MARS, beside a plain loop, and how the cost grows.

    python benchmarks/retrieval.py            # MARS size
    python benchmarks/retrieval.py --large    # a gallery of a million rows, on disk
    python benchmarks/retrieval.py --part 0.1 # a tenth of the rows, to try it (--large too)

The loop is written like torchreid's Python evaluator: an argsort of each row, boolean masks, and a
cumulative sum. Both rank the same similarity matrix, alternating, and the medians are printed.
"""

import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from machine import command_line
from numpy.typing import NDArray

from imae.metrics.retrieval import Features, Protocol, evaluate, normalise, similarities, summarise

_QUERIES, _GALLERY, _IDS, _CAMERAS, _LENGTH = 1980, 9330, 636, 6, 1024


def plain_loop(
    similarity: Features,
    query_ids: NDArray[np.int64],
    gallery_ids: NDArray[np.int64],
    query_cameras: NDArray[np.int64],
    gallery_cameras: NDArray[np.int64],
) -> float:
    order = np.argsort(-similarity, axis=1, kind="stable")
    matches = (gallery_ids[order] == query_ids[:, None]).astype(np.int32)
    precisions = []
    for query in range(len(similarity)):
        row = order[query]
        is_same = gallery_ids[row] == query_ids[query]
        keep = ~(is_same & (gallery_cameras[row] == query_cameras[query]))
        kept = matches[query][keep]
        if not kept.any():
            continue
        hits = [count / (place + 1.0) for place, count in enumerate(kept.cumsum())]
        precisions.append((np.asarray(hits) * kept).sum() / kept.sum())
    return float(np.mean(precisions))


def mars_sized(part: float) -> None:
    draw = np.random.default_rng(123)
    num_queries, num_gallery = round(part * _QUERIES), round(part * _GALLERY)
    centres = draw.normal(size=(_IDS, _LENGTH))
    ids = draw.integers(0, _IDS, num_queries), draw.integers(0, _IDS, num_gallery)
    cameras = draw.integers(0, _CAMERAS, num_queries), draw.integers(0, _CAMERAS, num_gallery)
    queries, gallery = (
        (centres[each] + 6 * draw.normal(size=(len(each), _LENGTH))).astype(np.float32)
        for each in ids
    )
    times: dict[str, list[float]] = {"product": [], "ours": [], "loop": []}
    for _ in range(3):
        began = time.perf_counter()
        similarity = similarities(normalise(queries), gallery)
        times["product"].append(time.perf_counter() - began)
        copy = similarity.copy()
        began = time.perf_counter()
        found = summarise(Protocol(ids[0], ids[1], *cameras).ranks(0, copy), (1, 5, 10, 20))
        times["ours"].append(time.perf_counter() - began)
        began = time.perf_counter()
        expected = plain_loop(similarity, ids[0], ids[1], *cameras)
        times["loop"].append(time.perf_counter() - began)
    product, ours, loop = (statistics.median(times[name]) for name in ("product", "ours", "loop"))
    print(
        f"{num_queries} queries, gallery of {num_gallery}, {_LENGTH} numbers, one thread, 3 rounds"
    )
    print(f"similarity product          {product:7.3f} s")
    print(f"ranking and scoring         {ours:7.3f} s ({ours / product:.2f} of the product)")
    print(f"plain loop                  {loop:7.3f} s ({loop / ours:.0f} times ours)")
    difference = abs(found.mean_average_precision - expected)
    print(f"mAP {found.mean_average_precision:.6f}, difference to the loop {difference:.1e}")


def large(part: float) -> None:
    draw = np.random.default_rng(123)
    length, num_queries = 128, 100
    with tempfile.TemporaryDirectory() as folder:
        for number in (round(part * size) for size in (10_000, 100_000, 1_000_000)):
            path = Path(folder, f"{number}.npy")
            mapped = np.lib.format.open_memmap(path, "w+", np.float32, (number, length))
            for start in range(0, number, 50_000):
                mapped[start : start + 50_000] = draw.normal(
                    size=mapped[start : start + 50_000].shape
                )
            mapped.flush()
            gallery = np.load(path, mmap_mode="r")
            began = time.perf_counter()
            evaluate(
                gallery[:num_queries] + 0.1,
                gallery,
                np.arange(num_queries),
                np.arange(number) % min(number, 10_000),
                np.zeros(num_queries, int),
                np.ones(number, int),
            )
            seconds = time.perf_counter() - began
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(
                f"gallery of {number:>9,}: {seconds / num_queries * 1e3:8.2f} ms a query, "
                f"peak memory so far {peak:.2f} GB"
            )


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--part", type=float, default=1.0)
    arguments = parser.parse_args()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    if arguments.large:
        large(arguments.part)
    else:
        mars_sized(arguments.part)


if __name__ == "__main__":
    main()
