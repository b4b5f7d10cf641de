"""What a run ran on, and the settings of the process that decide its bits."""

import contextlib
import datetime
import importlib.metadata
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("torch", "numpy", "imae", "lightning-fabric")


def describe(device: torch.device, threads: int) -> dict[str, Any]:
    """Versions, device, threads, processor and commit, for ``env.json``.

    Args:
        device: Where the run computes.
        threads: Threads of each process.
    """
    return {
        "python": platform.python_version(),
        **{name.replace("-", "_"): importlib.metadata.version(name) for name in _PACKAGES},
        "device": _device_name(device),
        "threads": threads,
        "cpu": _cpu_name(),
        "commit": _commit(),
        "platform": platform.platform(),
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


@contextlib.contextmanager
def pinned(threads: int, device: torch.device) -> Iterator[None]:
    """A number of threads and no random number from outside, for as long as the block runs.

    Each step seeds the global generator, which networks with dropout draw from; afterwards it is
    as it was. On an accelerator, algorithms that give other bits each time are avoided.
    """
    before = torch.get_num_threads()
    mode = torch.get_deterministic_debug_mode()
    devices = [device.index or 0] if device.type == "cuda" else []
    torch.set_num_threads(threads)
    if device.type != "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        torch.set_num_threads(before)
        torch.set_deterministic_debug_mode(mode)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def _cpu_name() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of the source, if it is run from a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()
