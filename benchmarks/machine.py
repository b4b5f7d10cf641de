"""What every benchmark prints about the machine, and how it times and weighs memory."""

import ctypes
import gc
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch


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
    """Seconds of the fastest run of each step, all of them taken in turn.

    Turns put every step under the same load; the fastest run is the one least disturbed.
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


def extra_bytes(step: Callable[[], object]) -> int:
    """Bytes of memory that a step needs at its peak, beyond what was there before (Linux)."""
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
