"""Time and memory of IMAE beside cross entropy, the textbook formula and one copy of the logits.

Run: python benchmarks/losses.py
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))

from machine import describe, extra_bytes, load, median_of_turns

import imae
from imae.curves import IMAE

SIZES = ((128, 10), (128, 100), (4096, 1000), (1024, 50000))
# Targets: time of IMAE over that of cross entropy, forward and backward.
TIME_TARGETS = {(128, 10): 2.0, (4096, 1000): 0.6, (1024, 50000): 0.85}
LINEAR_TARGETS = (0.6, 0.08)  # time and memory of the fused classifier
MEMORY_TARGET = 1.1
SMALLEST_WEIGHED = 1 << 20  # fewer logits than this drown in the allocator's noise
CURVE = IMAE(T=8.0)


def textbook_mae(logits: Tensor, target: Tensor) -> Tensor:
    """MAE as loss repositories write it: a softmax against one-hot labels."""
    p = functional.softmax(logits, dim=1)
    one_hot = functional.one_hot(target, logits.shape[1]).float()
    return (p - one_hot).abs().sum(1).mean()


def step(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor) -> None:
    logits.grad = None
    loss(logits, target).backward()


def compare(num_rows: int, num_classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(num_rows, num_classes, generator=generator).requires_grad_()
    target = torch.randint(num_classes, (num_rows,), generator=generator)
    losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "cross_entropy": functional.cross_entropy,
        "imae": lambda z, y: imae.curve_loss(z, y, CURVE),
        "imae, capped": imae.IMAELoss(T=8.0, cap=0.75, normalize="chance"),
        "imae, T auto": imae.IMAELoss(T="auto", cap=0.75, normalize="chance"),
        "textbook": textbook_mae,
    }
    steps: dict[str, Callable[[], object]] = {
        name: partial(step, loss, logits, target) for name, loss in losses.items()
    }
    steps["copy"] = lambda: logits.detach().clone()
    found = median_of_turns(steps, "cross_entropy")
    aim = TIME_TARGETS.get((num_rows, num_classes))
    print(f"\n({num_rows}, {num_classes}), {load()}")
    for name, (seconds, ratio) in found.items():
        times = f"{ratio:5.2f} x cross_entropy"
        print(f"  {name:14} {seconds * 1e3:9.3f} ms  {times}{_memory(steps[name], logits)}")
    if aim is not None:
        measured = found["imae"][1]
        print(f"  target: imae at most {aim} x cross_entropy; measured {measured:.2f}")


def _memory(run: Callable[[], object], logits: Tensor) -> str:
    if logits.numel() < SMALLEST_WEIGHED:
        return ""
    logits.grad = None
    return f"  {extra_bytes(run) / (logits.numel() * 4):5.2f} x logits of extra memory"


def compare_linear(num_rows: int, width: int, num_classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(num_rows, width, generator=generator).requires_grad_()
    matrix = (torch.randn(num_classes, width, generator=generator) / width**0.5).requires_grad_()
    target = torch.randint(num_classes, (num_rows,), generator=generator)

    def clear() -> None:
        features.grad = matrix.grad = None

    def unfused() -> None:
        clear()
        functional.cross_entropy(functional.linear(features, matrix), target).backward()

    def fused() -> None:
        clear()
        imae.linear_curve_loss(features, matrix, target, CURVE).backward()

    steps = {"linear + cross_entropy": unfused, "linear_curve_loss": fused}
    found = median_of_turns(steps, "linear + cross_entropy")
    memory = {}
    for name, run in reversed(steps.items()):
        clear()
        memory[name] = extra_bytes(run)
    print(f"\nclassifier {num_rows} x {width} -> {num_classes}, {load()}")
    for name, (seconds, ratio) in found.items():
        share = memory[name] / memory["linear + cross_entropy"]
        print(
            f"  {name:24} {seconds * 1e3:9.1f} ms {ratio:5.2f} x"
            f"  {memory[name] / 2**20:8.1f} MiB {share:5.2f} x"
        )
    time_target, memory_target = LINEAR_TARGETS
    print(f"  target: at most {time_target} x the time and {memory_target} x the memory")


def main() -> None:
    print(describe())
    print("forward and backward, float32; medians of many turns, of ratios within a turn")
    for size in SIZES:
        compare(*size)
    print(f"\nmemory target: imae at most {MEMORY_TARGET} x the logits")
    compare_linear(2048, 128, 50000)


if __name__ == "__main__":
    main()
