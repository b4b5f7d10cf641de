"""The cost of a training step with everything on, beside the bare step and a plain loop.

    python benchmarks/train.py --steps 60 --root FOLDER

ResNet-20 on CIFAR-10, batches of 128, one run, all kinds alternating, and all with the same
memory layout (``--channels-last`` for the other one):

- bare: forward, backward and step on one batch in memory;
- ours: the loop of `imae train`, with batches, crops and mirrors, the loss, dynamics, the watch on
  numbers, the learning-rate schedule, and a checkpoint and a row of the history at the end of the
  epoch (each step includes its share); evaluation passes are not training and not timed;
- plain: a DataLoader that pads, crops, mirrors and normalises one image at a time, as most scripts
  do: PIL images, by the steps of torchvision's RandomCrop, RandomHorizontalFlip, ToTensor and
  Normalize; and the same on tensors. Both without worker processes, which would work
  while the other kinds are being timed.

Then the default settings (bfloat16, channels last and compilation where they are faster) beside
float32, contiguous and eager, and beside the arithmetic limit: 31 GFLOP a step at the rate at which
this machine multiplies matrices.

Without CIFAR-10 under ``--root`` the images are random numbers of the same shape, and the output
says so.
"""

import dataclasses
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import command_line
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from imae.data import ArrayImages, load
from imae.errors import ImaeError
from imae.models import build
from imae.records import RunFolder
from imae.train.config import Config
from imae.train.display import Display
from imae.train.dynamics import Dynamics
from imae.train.journal import Journal
from imae.train.learner import predict_held_out
from imae.train.loop import train_step
from imae.train.machine import build_fabric, pinned
from imae.train.processes import StopRequest
from imae.train.setup import setup
from imae.train.state import State

BATCH_SIZE = 128
NUM_ROWS = 50_000
STEP_OPERATIONS = 31e9  # of ResNet-20 with 128 rows, forward and backward
MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
STD = torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)
TITLES = {
    "bare": "bare forward, backward, step",
    "ours": "imae train, everything on",
    "pil": "plain loop, PIL transforms",
    "tensor": "plain loop, tensor transforms",
}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--steps", type=int, default=60, help="steps of each kind to time")
    parser.add_argument("--root", type=Path, help="folder that holds CIFAR-10")
    parser.add_argument("--channels-last", action="store_true", help="the layout of all kinds")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    print(
        f"{platform.platform()}, {os.cpu_count()} cores, {arguments.threads} threads, "
        f"torch {torch.__version__}, Python {platform.python_version()}, "
        f"{'channels last' if arguments.channels_last else 'contiguous'}"
    )
    with tempfile.TemporaryDirectory() as folder:
        name, root = find_or_make_images(Path(folder), arguments.root)
        plain = {"threads": arguments.threads, "precision": "32-true", "compile": False}
        machine = {**plain, "channels_last": arguments.channels_last}
        state = started(name, root, machine, Path(folder) / "run")
        with pinned(arguments.threads, torch.device("cpu")):
            compare(state, Path(folder) / "run", arguments.steps)
            kinds = {
                "float32, contiguous, eager": {**plain, "channels_last": False},
                "defaults": {"threads": arguments.threads},
                "defaults, compiled": {"threads": arguments.threads, "compile": True},
            }
            states = {
                title: started(name, root, machine, Path(folder) / title)
                for title, machine in kinds.items()
            }
            compare_defaults(states, arguments.steps)


def find_or_make_images(folder: Path, root: Path | None) -> tuple[str, Path | None]:
    """CIFAR-10 if it is available, else random images of its shape; prints which."""
    try:
        load("cifar10", root=root)
    except ImaeError:
        print("data: random images of the shape of CIFAR-10 (the set itself is not here)")
        generator = np.random.Generator(np.random.PCG64(0))
        images = generator.integers(0, 256, (NUM_ROWS, 3, 32, 32), dtype=np.uint8)
        np.savez(folder / "cifar-shaped.npz", x=images, y=np.arange(NUM_ROWS) % 10)
        return str(folder / "cifar-shaped.npz"), None
    print("data: CIFAR-10")
    return "cifar10", root


def started(name: str, root: Path | None, machine: dict[str, Any], out: Path) -> State:
    config = Config.model_validate(
        {
            "data": {"name": name, "root": None if root is None else str(root)},
            "noise": "symmetric:0.4",
            "model": {"name": "resnet20"},
            "train": {"batch_size": BATCH_SIZE, "epochs": 1},
            "machine": {"accelerator": "cpu", **machine},
            "out": str(out),
        }
    )
    return setup(config, build_fabric(config.machine), Display())


def compare(state: State, folder: Path, steps: int) -> None:
    images, labels = plain_images(state)
    kinds = {
        "bare": bare_steps(state),
        "ours": our_steps(state),
        "pil": plain_steps(PilImages(images, labels), state),
        "tensor": plain_steps(TensorImages(torch.from_numpy(images), labels), state),
    }
    wall: dict[str, list[float]] = {kind: [] for kind in kinds}
    busy: dict[str, list[float]] = {kind: [] for kind in kinds}
    for run in kinds.values():
        next(run)  # the first step allocates
    # Alternating, so that other load on the machine affects all.
    while len(wall["bare"]) < steps:
        for kind, run in kinds.items():
            start, start_busy = time.perf_counter(), time.process_time()
            next(run)
            wall[kind].append(time.perf_counter() - start)
            busy[kind].append(time.process_time() - start_busy)
    predicting, writing = ends_of_epochs(state, folder)
    written = writing / state.steps_per_epoch
    print(f"\nResNet-20, batches of {BATCH_SIZE}, median of {len(wall['bare'])} steps")
    print(f"writing at ends of epochs takes {1e3 * written:.2f} ms a step, counted into ours")
    apart = 1e3 * predicting / state.steps_per_epoch
    print(
        f"predicting the held-out rows there takes {apart:.2f} ms a step, evaluation, not counted"
    )
    # Processor time is what to read on a machine that is doing other things too. Ratios are taken
    # turn by turn: neighbours in time met the same disturbance.
    for name, seconds in (("wall time", wall), ("processor time", busy)):
        seconds["ours"] = [each + written for each in seconds["ours"]]
        print(name)
        for kind, title in TITLES.items():
            pairs = zip(seconds[kind], seconds["bare"], strict=True)
            ratio = statistics.median(mine / bare for mine, bare in pairs)
            median = statistics.median(seconds[kind])
            print(f"  {title:30} {1e3 * median:8.1f} ms   {ratio:.3f} of bare")
    print("targets: imae train at most 1.05 of bare, and less than the plain loops")


def compare_defaults(states: dict[str, State], steps: int) -> None:
    """Steps of the loop with several settings of the machine, beside the arithmetic limit."""
    runs = {title: our_steps(state) for title, state in states.items()}
    for run in runs.values():
        next(run)
        next(run)  # the first allocates, and compiles
    wall: dict[str, list[float]] = {title: [] for title in runs}
    busy: dict[str, list[float]] = {title: [] for title in runs}
    for _ in range(steps):
        for title, run in runs.items():
            start, start_busy = time.perf_counter(), time.process_time()
            next(run)
            wall[title].append(time.perf_counter() - start)
            busy[title].append(time.process_time() - start_busy)
    print(f"\nThe default settings, median of {steps} steps: wall time, processor time")
    for title, state in states.items():
        machine = state.config.machine
        seconds, used = statistics.median(wall[title]), statistics.median(busy[title])
        print(
            f"  {title:30} {1e3 * seconds:8.1f} ms {1e3 * used:8.1f} ms   ({machine.precision}, "
            f"channels_last={machine.channels_last}, compile={machine.compile})"
        )
    for dtype in (torch.float32, torch.bfloat16):
        rate = multiplications(dtype)
        limit = STEP_OPERATIONS / rate
        print(f"  limit at {rate / 1e9:6.0f} GFLOP/s in {dtype!s:15} {1e3 * limit:8.1f} ms")


def multiplications(dtype: torch.dtype, size: int = 2048) -> float:
    """Operations per second of this machine, from the fastest of five matrix products."""
    a, b = torch.ones(size, size, dtype=dtype), torch.ones(size, size, dtype=dtype)
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds[1:])


def bare_steps(state: State) -> Iterator[None]:
    network, optimizer = plain_network(state)
    batch = next(iter(state.batches.epoch(0)))
    inputs = batch.inputs.contiguous(memory_format=layout(state))
    while True:
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(inputs), batch.target)
        torch.autograd.backward(loss)
        optimizer.step()
        yield


def our_steps(state: State) -> Iterator[None]:
    state.learner.train()
    while True:
        for batch in state.batches.epoch(0):
            train_step(state, batch, StopRequest())
            yield


def plain_steps(images: Dataset[tuple[Tensor, Tensor]], state: State) -> Iterator[None]:
    network, optimizer = plain_network(state)
    loader = DataLoader(images, batch_size=BATCH_SIZE, shuffle=True)
    while True:
        for inputs, target in loader:
            optimizer.zero_grad()
            inputs = inputs.contiguous(memory_format=layout(state))
            loss = functional.cross_entropy(network(inputs), target)
            torch.autograd.backward(loss)
            optimizer.step()
            yield


def plain_network(state: State) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    network = build("resnet20", num_classes=10, seed=0)
    network = network.to(memory_format=layout(state))  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(
        network.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    return network, optimizer


def layout(state: State) -> torch.memory_format:
    is_last = state.config.machine.channels_last
    return torch.channels_last if is_last else torch.contiguous_format


def plain_images(state: State) -> tuple[NDArray[np.uint8], Tensor]:
    """The training images as they are kept in arrays, shape (N, 32, 32, 3), and their labels."""
    inputs = state.prepared.train.inputs
    assert isinstance(inputs, ArrayImages)
    images = np.ascontiguousarray(inputs.pixels.transpose(0, 2, 3, 1))
    return images, torch.from_numpy(state.prepared.train.labels)


@dataclasses.dataclass(frozen=True)
class PilImages(Dataset[tuple[Tensor, Tensor]]):
    """Images that go through PIL one at a time, in the steps of torchvision."""

    images: NDArray[np.uint8]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        image = ImageOps.expand(Image.fromarray(self.images[row]), border=4, fill=0)
        top, left = (int(torch.randint(0, 9, (1,)).item()) for _ in range(2))
        image = image.crop((left, top, left + 32, top + 32))
        if torch.rand(1) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image, np.uint8, copy=True)).permute(2, 0, 1)
        tensor = pixels.contiguous().to(torch.float32).div(255)
        return tensor.sub_(MEAN).div_(STD), self.labels[row]


@dataclasses.dataclass(frozen=True)
class TensorImages(Dataset[tuple[Tensor, Tensor]]):
    """The same with torch operations."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        image = functional.pad(self.images[row].permute(2, 0, 1).float() / 255, (4, 4, 4, 4))
        top, left, mirror = torch.randint(9, (3,)).tolist()
        image = image[:, top : top + 32, left : left + 32]
        image = image.flip(2) if mirror % 2 else image
        return (image - MEAN) / STD, self.labels[row]


def ends_of_epochs(state: State, folder: Path) -> tuple[float, float]:
    """Seconds to predict held-out rows; and to write dynamics, checkpoint, history and progress."""
    journal = Journal(RunFolder(folder), Display())
    journal.begin(state, is_resumed=False)
    start = time.perf_counter()
    held = predict_held_out(state)
    predicted = time.perf_counter()
    record = Dynamics.record(state.dynamics.state())
    journal.run.write_dynamics(1, record, held.unseen, is_synced=False)
    journal.checkpoint(state)
    journal.run.append_history({"step": state.step, "test_accuracy": 0.5})
    journal.run.write_progress(step=1, total_steps=1, seconds=1.0, status="running")
    return predicted - start, time.perf_counter() - predicted


if __name__ == "__main__":
    main()
