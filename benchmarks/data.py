"""The cost of preparing data, beside what it should be small against.

    python benchmarks/data.py --photos FOLDER

Five tables in one run: preparing a batch of CIFAR-sized images beside a training step of
ResNet-20; peak memory with arrays of CIFAR-10's size; reading a data frame of numbers beside the
same array; decoding photos beside plain Pillow doing the same work (imae computes only the crop,
and decodes a JPEG of 1024 pixels or more at a fraction of its size; plain Pillow does neither);
features of a frozen network beside a plain loop. Without ``--photos`` the photos are random.
"""

import argparse
import importlib
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import command_line, fastest
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from imae._draws import numpy_generator, torch_generator
from imae.data import ArrayImages, Batches, ImageFiles, Split, from_arrays
from imae.data.extract import extract_features
from imae.data.image_files import SUFFIXES
from imae.models.network import Network

NUM_ROWS = 60_000  # CIFAR-10's training and test images together
BATCH_SIZE = 128
NUM_PHOTOS = 200
FRAME_ROWS = 200_000
FEATURE_ROWS = 512


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--photos", type=Path, help="folder of photos, searched in depth")
    parser.add_argument("--steps", type=int, default=20, help="training steps to time")
    parser.add_argument("--memory-only", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_only:
        print(peak_megabytes())
        return
    print(
        f"{platform.platform()}, {os.cpu_count()} cores, torch {torch.__version__} on "
        f"{torch.get_num_threads()} threads, numpy {np.__version__}, "
        f"Python {platform.python_version()}"
    )
    compare_memory()  # first: on Linux a child's peak is at least its parent's size
    compare_with_step(arguments.steps)
    compare_frames()
    with tempfile.TemporaryDirectory() as scratch:
        photos = arguments.photos
        found = made_photos(Path(scratch)) if photos is None else found_photos(photos)
        compare_decoding(*found)
        compare_features(*found)


def cifar_sized() -> Split:
    pixels = numpy_generator(0, "benchmark").integers(0, 256, (NUM_ROWS, 3, 32, 32), dtype=np.uint8)
    images = ArrayImages(pixels, mean=(0.49, 0.48, 0.45), std=(0.25, 0.24, 0.26))
    labels = np.arange(NUM_ROWS) % 10
    return Split(images, labels, np.arange(NUM_ROWS).astype(str), tuple("0123456789"))


def compare_with_step(steps: int) -> None:
    from imae.models import build

    network = build("resnet20", num_classes=10, seed=0)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    prepare, train = [], []
    epoch = Batches(cifar_sized(), BATCH_SIZE, seed=0).epoch(0)
    next(epoch)
    # Alternating, so that other load on the machine affects both.
    for _ in range(steps):
        start = time.perf_counter()
        batch = next(epoch)
        prepare.append(time.perf_counter() - start)
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(batch.inputs), batch.target)
        torch.autograd.backward(loss)
        optimizer.step()
        train.append(time.perf_counter() - start)
    batch_time, step_time = statistics.median(prepare), statistics.median(train)
    print(f"\nbatch of {BATCH_SIZE} images of 32 x 32, median of {steps}")
    print(f"  index, crop, flip, normalise  {1e3 * batch_time:9.2f} ms")
    print(f"  ResNet-20 training step       {1e3 * step_time:9.2f} ms")
    print(f"  ratio                         {batch_time / step_time:9.2%}   (at most 3%)")


def peak_megabytes() -> float:
    """Peak memory of this process after one epoch over all images, in MB of 10^6 bytes."""
    for _ in Batches(cifar_sized(), BATCH_SIZE, seed=0).epoch(0):
        pass
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def compare_memory() -> None:
    """In a process of its own: a peak of memory cannot be reset."""
    run = subprocess.run(
        [sys.executable, __file__, "--memory-only"], capture_output=True, text=True, check=True
    )
    bare = subprocess.run(
        [sys.executable, "-c", BARE_IMPORT], capture_output=True, text=True, check=True
    )
    peak, imports = float(run.stdout), float(bare.stdout)
    print(f"\n{NUM_ROWS} images of 32 x 32 in memory, one epoch")
    print(f"  pixels                        {NUM_ROWS * 3072 / 1e6:9.0f} MB")
    print(f"  peak with importing torch     {peak:9.0f} MB   (at most 1200 MB)")
    print(f"  importing torch alone         {imports:9.0f} MB")


BARE_IMPORT = (
    "import resource, sys, numpy, torch;"
    "unit = 1 if sys.platform == 'darwin' else 1024;"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6)"
)


def compare_frames() -> None:
    """Best of three rounds taken in turns; embeddings, and the same with an empty cell."""
    pandas = importlib.import_module("pandas")

    draws = numpy_generator(0, "frames")
    values = draws.normal(size=(FRAME_ROWS, 256)).astype(np.float32)
    labels = draws.integers(0, 10, FRAME_ROWS)
    frame = pandas.DataFrame(values, columns=[f"f{index}" for index in range(256)])
    empty = frame.copy()
    empty.iloc[5, 5] = None
    seconds: dict[str, list[float]] = {}
    for _ in range(3):
        for name, rows in (("array", values), ("frame", frame), ("one empty cell", empty)):
            start = time.perf_counter()
            from_arrays(rows, labels)
            seconds.setdefault(name, []).append(time.perf_counter() - start)
    print(f"\n{FRAME_ROWS} x 256 numbers read, with labels")
    for name, times in seconds.items():
        print(f"  {name:28}  {min(times):9.2f} s")


def found_photos(folder: Path) -> tuple[Path, list[str]]:
    names = sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
    )
    chosen = numpy_generator(0, "photos").permutation(len(names))[:NUM_PHOTOS]
    return folder, [names[index] for index in chosen]


def made_photos(folder: Path) -> tuple[Path, list[str]]:
    generator = numpy_generator(0, "photos")
    for index in range(NUM_PHOTOS):
        coarse = generator.integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((640, 480)).save(folder / f"{index}.jpg")
    return folder, [f"{index}.jpg" for index in range(NUM_PHOTOS)]


def compare_decoding(folder: Path, names: Sequence[str]) -> None:
    """One thread each, processor time, best of several rounds taken in turns."""
    files = ImageFiles(folder, names)
    rows = np.arange(len(names))

    def bare() -> None:
        for name in names:
            with Image.open(folder / name) as image:
                square = image.convert("RGB").resize((256, 256), Image.Resampling.BILINEAR)
            np.asarray(square)

    def worker() -> None:
        for start in range(0, len(rows), 50):
            files.gather(rows[start : start + 50], generator=torch_generator(0, "augment", 0))

    def whole() -> None:
        for start in range(0, len(rows), 50):
            files.batch(rows[start : start + 50], generator=torch_generator(0, "augment", 0))

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rates = best_rates({"bare": bare, "worker": worker, "whole": whole}, len(names))
    torch.set_num_threads(threads)
    print(f"\n{len(names)} photos, images a second on one core")
    print(f"  Pillow: decode, resize to 256, to array       {rates['bare']:7.0f}")
    print(
        f"  a worker: decode, warp, crop 227, mirror      {rates['worker']:7.0f}   "
        f"{rates['worker'] / rates['bare']:.0%} of Pillow   (at least 80%)"
    )
    print(
        f"  the same and normalise to float32             {rates['whole']:7.0f}   "
        f"{rates['whole'] / rates['bare']:.0%} of Pillow"
    )


def compare_features(folder: Path, names: Sequence[str]) -> None:
    """Wall time, best of several rounds taken in turns."""
    from imae.models import build
    from imae.train.preparation import image_features, published_images

    name = "efficientnet_lite0"
    network = build(name, num_classes=1000, seed=0).eval()
    photos = published_images(name, ImageFiles(folder, names))
    small = cifar_sized().take(np.arange(FEATURE_ROWS)).inputs
    for heading, inputs, size in (("photos", photos, None), ("images of 32 x 32", small, 112)):
        split = Split(inputs, np.zeros(len(inputs), int), np.arange(len(inputs)).astype(str), ("",))
        plain_network = build(name, num_classes=1000, seed=0).eval()
        fast = image_features(network, inputs.shape)

        @torch.inference_mode()
        def plain(split: Split = split, network: Network = plain_network, size: Any = size) -> None:
            for batch in Batches(split, 64, seed=0, shuffle=False, augment=False).epoch(0):
                images = batch.inputs
                if size is not None:
                    images = interpolate(images, (size, size), mode="bicubic", align_corners=False)
                network.features(images)

        def ours(split: Split = split, fast: Callable[[Tensor], Tensor] = fast) -> None:
            with tempfile.TemporaryDirectory() as cache:
                extract_features(split, fast, name=name, cache=Path(cache))

        seconds = fastest({"plain": plain, "ours": ours}, seconds=20)
        rates = {each: len(inputs) / taken for each, taken in seconds.items()}
        print(f"\n{name} of {len(inputs)} {heading}, rows a second")
        print(f"  plain loop in float32                         {rates['plain']:7.0f}")
        print(
            f"  imae: read ahead, bfloat16 where there is any {rates['ours']:7.0f}   "
            f"{rates['ours'] / rates['plain']:.1f} times   (at least 2 with bfloat16)"
        )


def best_rates(
    tasks: dict[str, Callable[[], None]], number: int, *, rounds: int = 5
) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            seconds[name].append(time.process_time() - start)
    return {name: number / min(times) for name, times in seconds.items()}


if __name__ == "__main__":
    main()
