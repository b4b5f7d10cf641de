"""What every benchmark prints about the machine, and how time and memory are measured."""

import argparse
import ctypes
import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch


def command_line(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help shows the docstring of a script as it is written."""
    formatter = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=description, formatter_class=formatter)


def describe() -> str:
    """One line on the processor, the threads and the versions."""
    cpu = platform.processor() or "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].split(":", 1)[1].strip() if names else cpu
    capability = torch.backends.cpu.get_cpu_capability()
    return (
        f"{cpu} ({capability}), {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}, Python {platform.python_version()}"
    )


def fastest(steps: Mapping[str, Callable[[], object]], *, seconds: float = 4.0) -> dict[str, float]:
    """Seconds of the fastest run of each step; the steps alternate.

    Alternating puts every step under the same load; the fastest run is the least disturbed one.
    """
    best = dict.fromkeys(steps, float("inf"))
    for step in steps.values():
        step()
    end = time.perf_counter() + seconds * len(steps)
    rounds = 0
    while rounds < 5 or time.perf_counter() < end:
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            best[name] = min(best[name], time.perf_counter() - start)
        rounds += 1
    return best


def median_of_rounds(
    steps: Mapping[str, Callable[[], object]],
    base: str,
    *,
    between: Callable[[], object] = lambda: None,
    seconds: float = 4.0,
) -> dict[str, tuple[float, float]]:
    """Median seconds of each step, and the median of its ratios to ``base`` in the same round.

    A round has a block of runs of each step, so that both sides of a ratio are under the same
    load, and each finds the memory and the caches that its own runs have left, as in training.

    Args:
        steps: By name.
        base: The step that is the denominator of the ratios.
        between: Runs before every step and is not timed: fills the caches as training does.
        seconds: Time of all rounds, for each step; at least 5 rounds are run.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    end = time.perf_counter() + seconds * len(steps)
    while len(times[base]) < 5 or time.perf_counter() < end:
        for name, step in steps.items():
            times[name].append(_median_of_block(step, between))
    return {
        name: (
            statistics.median(own),
            statistics.median(a / b for a, b in zip(own, times[base], strict=True)),
        )
        for name, own in times.items()
    }


def _median_of_block(step: Callable[[], object], between: Callable[[], object]) -> float:
    # The first runs bring the allocator to its state in a training with this step.
    taken = min(_seconds(step, between) for _ in range(2))
    number = max(3, min(12, int(0.2 / taken)))
    return statistics.median(_seconds(step, between) for _ in range(number))


def _seconds(step: Callable[[], object], between: Callable[[], object]) -> float:
    between()
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def keep_memory() -> None:
    """Lets the C library keep freed memory, so that no step gets it back page by page (Linux).

    Whether it does so by itself for buffers of 16 MB depends on what the process did before: the
    same cross entropy took 1.8 ms in one run and 3.5 ms in the next.
    """
    library = ctypes.CDLL("libc.so.6")
    library.mallopt(-4, 0)  # M_MMAP_MAX: no buffer is a mapping of its own
    library.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: the end of the heap is not returned


def load() -> str:
    """How many processes wanted a core in the last minute, to judge a timing by."""
    return f"load {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores"


def extra_bytes(step: Callable[[], object]) -> int:
    """Bytes of memory that a step needs at its peak, beyond what was in use before (Linux)."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # give freed memory back, so that it counts again
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    step()
    return max(0, _status("VmHWM") - before)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {field} in /proc/self/status")
