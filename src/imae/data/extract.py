"""Features of a frozen network, computed once and cached; embeddings of texts."""

import contextlib
import hashlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae.data.arrays import read_npz
from imae.data.batches import Batch, Batches
from imae.data.features import HashedText, Table
from imae.data.split import Inputs, Split
from imae.errors import ArgumentError, DataError, MissingExtraError, import_extra
from imae.records.files import whole_file

Progress = Callable[[int, int], None]


def extract_features(
    split: Split,
    network: Callable[[Tensor], Tensor],
    *,
    name: str,
    cache: Path,
    batch_size: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> Split:
    """The split with the network's features of every row instead of its inputs.

    The features are cached in ``cache`` under a hash of the name, the content of all rows and their
    preparation: the same files are never run twice, and a changed file is never mistaken for the
    old one. A damaged file in the cache is computed again. While the network runs, the next rows
    are read and decoded.

    Args:
        split: Rows whose plain inputs, as in evaluation, the network sees.
        network: Returns features of shape (B, E) for a batch. A module, or the module that this is
            a method of, is in evaluation mode while it runs.
        name: Name of the network and of its weights, which is part of the key of the cache.
        cache: Folder for the features.
        batch_size: Rows that the network processes at once.
        workers: Processes that read and decode.
        progress: Called with the numbers of rows done and in total. Without it a bar is shown on a
            terminal if rich is installed, and elsewhere a line is printed every 30 seconds.

    Raises:
        ArgumentError: If the network does not return one row of features for each row.
        DataError: If an image cannot be read, or a feature is not finite.
    """
    key = hashlib.sha256(f"{name}\n{split.inputs.content_hash()}".encode()).hexdigest()
    path = cache / f"features-{key[:32]}.npz"
    table = _cached(path, len(split))
    if table is None:
        batches = Batches(split, batch_size, seed=0, shuffle=False, augment=False, workers=workers)
        with _shown(progress) as report, _evaluating(network), torch.inference_mode():
            table = Table(_run(batches, network, report))
        with whole_file(path) as file:
            np.savez(file, features=table.values)
    return replace(split, inputs=table)


def _cached(path: Path, number: int) -> Table | None:
    if not path.exists():
        return None
    try:
        table = Table(read_npz(path, ["features"])["features"])
    except (DataError, KeyError):
        return None
    return table if len(table) == number else None


def _run(
    batches: Batches, network: Callable[[Tensor], Tensor], report: Progress
) -> NDArray[np.float32]:
    parts = []
    done = 0
    for batch in _read_ahead(batches.epoch(0)):
        features = network(batch.inputs)
        if features.ndim != 2 or len(features) != len(batch):
            raise ArgumentError(
                f"network must give features of shape ({len(batch)}, E), "
                f"got shape {tuple(features.shape)}"
            )
        parts.append(features.to("cpu", torch.float32).numpy())
        done += len(batch)
        report(done, len(batches.split))
    return np.concatenate(parts)


def _read_ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The batches; a thread reads the next one while the caller works on the current one."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="imae-read") as thread:
        waiting = thread.submit(next, batches, None)
        while (batch := waiting.result()) is not None:
            waiting = thread.submit(next, batches, None)
            yield batch


@contextlib.contextmanager
def _evaluating(network: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Evaluation mode for the block; afterwards each part is back in its previous mode."""
    owner = getattr(network, "__self__", network)  # the module, if this is a method of one
    modules = list(owner.modules()) if isinstance(owner, torch.nn.Module) else []
    was_training = [module for module in modules if module.training]
    for module in was_training:
        module.training = False
    try:
        yield
    finally:
        for module in was_training:
            module.training = True


@contextlib.contextmanager
def _shown(progress: Progress | None) -> Iterator[Progress]:
    if progress is not None:
        yield progress
        return
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield ProgressLog("features")
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True)) as bar:
        task = bar.add_task("features", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class ProgressLog:
    """Prints the progress of a long task at intervals, for logs.

    Args:
        name: What is being done.
        every: Seconds between two lines.
    """

    def __init__(self, name: str, *, every: float = 30.0) -> None:
        self._name, self._every = name, every
        self._start = self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Prints a line to standard error if the last one is old enough."""
        now = time.monotonic()
        if not done or now - self._last < self._every:
            return
        self._last = now
        speed = done / (now - self._start)
        minutes = (total - done) / speed / 60
        print(
            f"{self._name}: {done} of {total} rows, {speed:.1f} rows/s, {minutes:.0f} min left",
            file=sys.stderr,
            flush=True,
        )


_WORDLLAMA = ("tokenizers/l2_supercat_tokenizer_config.json", "weights/l2_supercat_256.safetensors")
_FOLDER = ("tokenizer.json", "model.safetensors")


def is_text_embedding(name: str) -> bool:
    """Whether this names embeddings of texts: ``"wordllama"``, or a folder."""
    return name == "wordllama" or Path(name).is_dir()


def embed_texts(inputs: Inputs, name: str) -> Table:
    """The mean of the embeddings of the word pieces of every text, of length 1, shape (N, E).

    Args:
        inputs: Texts.
        name: ``"wordllama"``, whose embeddings are inside its package, so that nothing is
            downloaded; or a folder with ``tokenizer.json`` and ``model.safetensors``, whose only
            matrix has a row for each word piece. model2vec writes such folders, and
            the part ``0_StaticEmbedding`` of a sentence-transformers model is one.

    Raises:
        ArgumentError: If the inputs are not texts.
        DataError: If the folder does not have these files, or they are damaged or do not match.
        MissingExtraError: If a package is not installed.
    """
    if not isinstance(inputs, HashedText) or inputs.texts is None:
        raise ArgumentError(f"features of {name} are for texts")
    tokenizer, vectors = _read_embedding(name)
    found = np.zeros((len(inputs), vectors.shape[1]), np.float32)
    for row, text in enumerate(inputs.texts):
        pieces = np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int64)
        if pieces.max(initial=0) >= len(vectors):
            raise DataError(f"{name}: has {len(vectors)} embeddings and more word pieces")
        if len(pieces):
            found[row] = vectors[pieces].mean(axis=0)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return Table(found / np.maximum(lengths, np.float32(1e-12)))


def _read_embedding(name: str) -> tuple[Any, NDArray[np.float32]]:
    """A tokenizer and the embedding of each of its word pieces."""
    library = import_extra("tokenizers", extra="texts")
    folder, names = Path(name), _FOLDER
    if name == "wordllama":
        spec = importlib.util.find_spec("wordllama")
        if spec is None or spec.origin is None:
            raise MissingExtraError(
                "wordllama is needed for this and not installed: pip install 'imae[texts]'"
            )
        folder, names = Path(spec.origin).parent, _WORDLLAMA
    try:
        tokenizer = library.Tokenizer.from_file(str(folder / names[0]))
        tensors = import_extra("safetensors.torch", extra="texts").load_file(folder / names[1])
    except Exception as error:  # the tokenizer raises plain Exception
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{folder}: {' or '.join(names)} cannot be read ({reason})") from error
    matrices = [tensor for tensor in tensors.values() if tensor.ndim == 2]
    if len(matrices) != 1:
        raise DataError(f"{folder / names[1]}: must hold one matrix, holds {len(matrices)}")
    return tokenizer, matrices[0].float().numpy()
