"""How the time of `imae train` grows with rows, classes and processes.

    python benchmarks/growth.py [--out results/benchmarks] [--figures docs/figures] [--redraw]

A point is a whole training run: reading, one epoch of at most 1,000 steps, evaluation and
everything that is written; by classes it is 20 steps without evaluation. The tables have 16
columns, the network is linear, a batch has 1,000 rows, a process one thread. By rows and classes
the time is processor time, which other load on the machine hardly changes, in a process that has
torch loaded; by processes it is wall time, including their start.
"""

import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import command_line

from imae.train import build_config, train

ROWS = (1_000, 10_000, 100_000, 1_000_000)
CLASSES = (10, 100, 1_000, 10_000, 100_000)
PROCESSES = (1, 2)
COLUMNS = 16


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    parser.add_argument("--small", action="store_true", help="leave out the largest sizes")
    parser.add_argument("--redraw", action="store_true", help="draw what was measured before")
    arguments = parser.parse_args()
    if arguments.redraw:
        stored = json.loads((arguments.out / "growth.json").read_text())
        draw(stored["points"], arguments.figures)
        return
    last = -1 if arguments.small else None
    points = []
    with tempfile.TemporaryDirectory() as folder:
        measured(Path(folder), "warm-up", 0, rows=1_000)  # loads what is loaded on first use
        for rows in ROWS[:last]:
            points.append(measured(Path(folder), "rows", rows, rows=rows))
        for classes in CLASSES[:last]:
            rows = max(20_000, classes)
            points.append(measured(Path(folder), "classes", classes, rows=rows, classes=classes))
        for processes in PROCESSES:
            points.append(
                measured(Path(folder), "processes", processes, rows=100_000, processes=processes)
            )
    machine = (
        f"{cpu_name()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end, "
        f"torch {torch.__version__}, Python {platform.python_version()}"
    )
    content = {"machine": machine, "points": points}
    (arguments.out / "growth.json").write_text(json.dumps(content, indent=2) + "\n")
    draw(points, arguments.figures)


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def measured(
    folder: Path, kind: str, size: int, *, rows: int, classes: int = 10, processes: int = 1
) -> dict[str, float | str]:
    """Seconds of a run."""
    data = folder / f"{kind}-{size}.npz"
    generator = np.random.Generator(np.random.PCG64(0))
    y = np.arange(rows) % classes
    x = generator.normal(size=(rows, COLUMNS)).astype(np.float32)
    x[:, 0] += y / classes
    np.savez(data, x=x, y=y)
    config = {
        "data": {"name": str(data), "hold_out": 0.0},
        "model": {"name": "linear"},
        "train": {
            "steps": 20 if kind == "classes" else max(1, min(rows // 1000, 1000)),
            "batch_size": min(1000, rows),
            "measure_train": kind != "classes",
        },
        "machine": {"threads": 1, "devices": processes, "accelerator": "cpu"},
        "out": str(folder / f"{kind}-{size}-run"),
    }
    wall, busy = time.perf_counter(), time.process_time()
    run = train(build_config(config))
    wall, busy = time.perf_counter() - wall, time.process_time() - busy
    assert run.result is not None
    seconds = wall if kind == "processes" else busy
    steps = run.result["steps"]
    print(f"{kind} {size:>9,}: {seconds:7.2f} s, {steps} steps", flush=True)
    data.unlink()
    return {"kind": kind, "size": size, "seconds": seconds, "wall_seconds": wall, "steps": steps}


def draw(points: list[dict[str, float | str]], folder: Path) -> None:
    import matplotlib.pyplot as plt

    for theme, colour, ground in (("light", "#222222", "#ffffff"), ("dark", "#dddddd", "#1e2129")):
        style: dict[Any, str] = {
            key: colour
            for key in (
                "axes.edgecolor",
                "axes.labelcolor",
                "xtick.color",
                "ytick.color",
                "text.color",
            )
        }
        with plt.rc_context({**style, "figure.facecolor": ground, "axes.facecolor": ground}):
            figure, axes = plt.subplots(
                2, 3, figsize=(10, 5.2), layout="constrained", sharex="col", sharey="row"
            )
            for (above, below), kind in zip(axes.T, ("rows", "classes", "processes"), strict=True):
                own = [each for each in points if each["kind"] == kind]
                sizes = [float(each["size"]) for each in own]
                above.plot(sizes, [float(each["seconds"]) for each in own], "o-")
                steps = [1e3 * float(each["seconds"]) / float(each["steps"]) for each in own]
                below.plot(sizes, steps, "s--", color="C1")
                below.set_xlabel(kind)
                for axis in (above, below):
                    axis.set_yscale("log")
                    if kind == "processes":
                        axis.set_xticks(sizes)
                    else:
                        axis.set_xscale("log")
                    axis.grid(alpha=0.25)
            axes[0, 0].set_ylabel("run, seconds")
            axes[1, 0].set_ylabel("run / steps, milliseconds")
            figure.savefig(folder / f"growth-{theme}.png", dpi=110)
            plt.close(figure)


if __name__ == "__main__":
    main()
