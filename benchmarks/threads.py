"""How much work a step needs before several threads are faster than one.

    python benchmarks/threads.py > results/benchmarks/threads.txt

Forward, backward and a step of the optimiser of small networks, by the number of operations that
`imae train` counts for a step; one thread and all threads alternate. The last column is
what `imae train` would choose, which is right where it is the faster of the two.
"""

import torch
from machine import command_line, describe, load, median_of_rounds

from imae.curves import GCE
from imae.losses import curve_loss
from imae.models import build
from imae.train.machine import SMALL_WORK, operations

CASES: tuple[tuple[str, tuple[int, ...], dict[str, int], tuple[int, ...]], ...] = (
    ("mlp", (20,), {"in_features": 20}, (64, 1024, 8192)),
    ("mlp", (1280,), {"in_features": 1280}, (16, 64, 256, 1024)),
    ("small_cnn", (1, 8, 8), {}, (16, 64, 256)),
    ("resnet20", (3, 32, 32), {}, (4, 32)),
)


def main() -> None:
    command_line(__doc__).parse_args()
    threads = torch.get_num_threads()
    print(describe())
    print(f"{load()}\n")
    print("| network | rows | operations of a step | 1 thread, ms | all, ms | all / 1 | chosen |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for name, shape, options, sizes in CASES:
        for rows in sizes:
            print(measured(name, shape, options, rows, threads), flush=True)


def measured(
    name: str, shape: tuple[int, ...], options: dict[str, int], rows: int, threads: int
) -> str:
    """A row of the table."""
    generator = torch.Generator().manual_seed(0)
    network = build(name, num_classes=10, **options)
    batch = torch.randn(rows, *shape, generator=generator)
    target = torch.randint(10, (rows,), generator=generator)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    work = 3 * rows * operations(network, batch[:1])

    def step(number: int) -> None:
        torch.set_num_threads(number)
        optimizer.zero_grad()
        curve_loss(network(batch), target, GCE()).backward()
        optimizer.step()

    taken = median_of_rounds(
        {"one": lambda: step(1), "all": lambda: step(threads)}, "one", seconds=1.5
    )
    chosen = "1" if work < SMALL_WORK else "all"
    return (
        f"| {name} | {rows} | {work:.1e} | {1000 * taken['one'][0]:.2f} "
        f"| {1000 * taken['all'][0]:.2f} | {taken['all'][1]:.2f} | {chosen} |"
    )


if __name__ == "__main__":
    main()
