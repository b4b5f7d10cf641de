"""Time and memory of IMAE beside cross entropy, textbook implementations, and one copy.

The copy reads and writes the logits once: no loss with a gradient can take less.

Run: python benchmarks/losses.py                  the C library returns large buffers to the system
     python benchmarks/losses.py --keep-memory    it keeps them: only arithmetic is compared
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))

from machine import command_line, describe, extra_bytes, keep_memory, load, median_of_rounds

import imae
from imae.curves import IMAE

SIZES = ((128, 10), (128, 100), (4096, 1000), (1024, 50000))
# Targets: time of IMAE over that of cross entropy, forward and backward.
TIME_TARGETS = {(128, 10): 2.0, (4096, 1000): 0.6, (1024, 50000): 0.85}
# The same for the recommended form, whose cap needs one more pass and whose T depends on the batch.
AUTO_TARGETS = {(128, 10): 3.0}
LINEAR_TARGETS = (0.6, 0.08)  # time and memory of the fused classifier
MEMORY_TARGET = 1.1
SMALLEST_WEIGHED = 1 << 20  # fewer logits than this drown in the allocator's noise
CURVE = IMAE(T=8.0)


def textbook_mae(logits: Tensor, target: Tensor) -> Tensor:
    """MAE as loss repositories write it: a softmax against one-hot labels."""
    p = functional.softmax(logits, dim=1)
    one_hot = functional.one_hot(target, logits.shape[1]).float()
    return (p - one_hot).abs().sum(1).mean()


def textbook_gce(logits: Tensor, target: Tensor) -> Tensor:
    """GCE as loss repositories write it."""
    p = functional.softmax(logits, dim=1).gather(1, target.unsqueeze(1))
    return ((1 - p**0.7) / 0.7).mean()


def textbook_imae(logits: Tensor, target: Tensor) -> Tensor:
    """IMAE from its weights: MAE with rows rescaled by constants; wrong where p rounds to 1."""
    p = functional.softmax(logits, dim=1).gather(1, target.unsqueeze(1))
    at = p.detach()
    factors = torch.exp(8.0 * at * (1 - at)) / (4 * at * (1 - at) + 5e-7)
    return (factors * 2 * (1 - p)).mean()


def step(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor) -> None:
    logits.grad = None
    loss(logits, target).backward()


def network_step(generator: torch.Generator) -> Callable[[], None]:
    """A step of a small network, as precedes the loss in training: it uses other code and data."""
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    inputs = torch.randn(128, 64, generator=generator)

    def run() -> None:
        optimizer.zero_grad()
        network(inputs).square().mean().backward()
        optimizer.step()

    return run


def compare(num_rows: int, num_classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(num_rows, num_classes, generator=generator).requires_grad_()
    target = torch.randint(num_classes, (num_rows,), generator=generator)
    losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "cross_entropy": functional.cross_entropy,
        "imae": imae.IMAELoss(T=8.0),
        "imae, capped": imae.IMAELoss(T=8.0, cap=0.75, normalize="half"),
        "imae, T auto": imae.IMAELoss(T="auto", cap=0.75, normalize="half"),
        "textbook mae": textbook_mae,
        "textbook gce": textbook_gce,
        "textbook imae": textbook_imae,
    }
    steps: dict[str, Callable[[], object]] = {
        name: partial(step, loss, logits, target) for name, loss in losses.items()
    }
    steps["copy"] = lambda: logits.detach().clone()
    found = median_of_rounds(steps, "cross_entropy", between=network_step(generator))
    print(f"\n({num_rows}, {num_classes}), {load()}")
    for name, (seconds, ratio) in found.items():
        times = f"{ratio:5.2f} x cross_entropy"
        print(f"  {name:14} {seconds * 1e3:9.3f} ms  {times}{_memory(steps[name], logits)}")
    for name, targets in (("imae", TIME_TARGETS), ("imae, T auto", AUTO_TARGETS)):
        aim = targets.get((num_rows, num_classes))
        if aim is not None:
            print(f"  target: {name} at most {aim} x cross_entropy; measured {found[name][1]:.2f}")


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
    found = median_of_rounds(steps, "linear + cross_entropy")
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
    parser = command_line(__doc__)
    parser.add_argument("--keep-memory", action="store_true")
    if parser.parse_args().keep_memory:
        keep_memory()
    print(describe())
    print("forward and backward, float32; medians of rounds, of ratios within a round")
    for size in SIZES:
        compare(*size)
    print(f"\nmemory target: imae at most {MEMORY_TARGET} x the logits")
    compare_linear(2048, 128, 50000)


if __name__ == "__main__":
    main()
