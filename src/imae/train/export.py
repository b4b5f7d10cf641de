"""A trained network in a file that other programs read."""

import contextlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from imae._checks import check_choice
from imae._extras import import_extra
from imae.data import ArrayImages, Data, HashedText, ImageFiles, Inputs, Table, extract_features
from imae.data.sources.root import data_root
from imae.data.unlabelled import feature_names, unprepared_table
from imae.errors import ArgumentError
from imae.models import Network, build, load_weights, pretrained_weights
from imae.train.config import DataConfig
from imae.train.predict import load_network, load_training, write_bytes
from imae.train.prepare import _for_published
from imae.train.run import Run

_QUIET = "torch.onnx._internal.exporter._registration"  # tells of each package that is not there


def export(
    run: Run | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    format: str = "onnx",
    which: str = "final",
) -> None:
    """Writes the network of a run, in evaluation mode, for use without imae.

    ``onnx`` is a graph for ONNX runtimes; ``torch`` an exported program for ``torch.export.load``,
    which needs none of imae's code either; both take prepared inputs ``x``, shape (N, ...) for any
    N, and give logits, shape (N, C). ``safetensors`` holds the weights alone, by name.

    All of them carry what is needed around the network, each as JSON text: ``class_names``,
    ``input_shape``, ``model`` and ``preparation``, which says how rows become inputs. It is found
    in the metadata of an ONNX or safetensors file, and in a torch program as extra files.

    Args:
        run: The run, or its folder.
        path: File to write, or to replace.
        format: "onnx", "torch" or "safetensors".
        which: "final", or "best" on the held-out labels.

    Raises:
        ArgumentError: If the format is unknown, or the network cannot be traced.
        DataError: If there is no trained run, or its training data is gone.
        ImaeError: If the file cannot be written.

    Examples:
        >>> import tempfile
        >>> from imae.train import build_config, train
        >>> folder = Path(tempfile.mkdtemp())
        >>> run = train(build_config({
        ...     "data": {"name": "digits"},
        ...     "model": {"name": "mlp"},
        ...     "train": {"steps": 2},
        ...     "out": str(folder / "run"),
        ... }))
        >>> export(run, folder / "digits.safetensors", format="safetensors")
        >>> [file.name for file in folder.glob("*.safetensors")]
        ['digits.safetensors']
    """
    check_choice("format", format, tuple(_WRITERS))
    run = run if isinstance(run, Run) else Run(run)
    network = load_network(run, which)
    facts = describe(run)
    texts = {name: json.dumps(value) for name, value in facts.items()}
    write_bytes(Path(path), _WRITERS[format](network, facts["input_shape"], texts))


def describe(run: Run) -> dict[str, Any]:
    """What one must know to use the network of a run, in plain values for JSON.

    Returns:
        ``class_names``, ``input_shape`` (of one row), ``model`` (name and arguments) and
        ``preparation``: means and deviations, of features as they stand in their columns, of
        images for each channel with pixels scaled to [0, 1].

    Raises:
        DataError: If the data that the run was trained on is gone.
    """
    training = load_training(run)
    settings = run.config.data
    inputs = training.train.inputs
    shape = list(inputs.shape)
    if settings.features is not None:
        preparation, shape = _frozen(training, settings)
    elif isinstance(inputs, Table):
        columns = feature_names(settings.name, settings.options)
        table = unprepared_table(settings.name, settings.options)
        preparation = {"kind": "features", "columns": columns, **_statistics(table.values)}
    else:
        preparation = _plain(inputs)
    model = {"name": run.config.model.name, "arguments": run.config.model.arguments}
    return {
        "class_names": list(training.class_names),
        "input_shape": shape,
        "model": model,
        "preparation": preparation,
    }


def _plain(inputs: Inputs) -> dict[str, Any]:
    if isinstance(inputs, HashedText):
        return {"kind": "texts", "num_features": inputs.num_features}
    assert isinstance(inputs, ArrayImages | ImageFiles)
    described: dict[str, Any] = {"kind": "images", "mean": inputs.mean, "std": inputs.std}
    if isinstance(inputs, ImageFiles):
        described |= {"resize": inputs.resize, "crop": inputs.crop}
    return described


def _frozen(training: Data, settings: DataConfig) -> tuple[dict[str, Any], list[int]]:
    """How images become features of a frozen network, and the shape of those."""
    name = settings.features
    assert name is not None
    split = _for_published(name)(training.train)
    weights = pretrained_weights(name)
    network = build(name, num_classes=1000)
    load_weights(network, weights)
    features = extract_features(  # already in the cache, as the run has made them
        split,
        network.features,
        name=weights.name,
        cache=data_root() / "features",
        workers=settings.workers,
    ).inputs
    assert isinstance(features, Table)
    images = _plain(split.inputs)
    described = {"kind": "frozen_features", "network": name, "images": images}
    return described | _statistics(features.values), list(features.shape)


def _statistics(values: NDArray[np.float32]) -> dict[str, list[float]]:
    """Mean and deviation of every column, as `imae.data.fitted` takes them."""
    scale = values.std(axis=0, dtype=np.float64)
    scale[scale == 0] = 1.0
    return {"mean": values.mean(axis=0, dtype=np.float64).tolist(), "std": scale.tolist()}


def _onnx(network: Network, shape: Sequence[int], texts: Mapping[str, str]) -> bytes:
    onnx = import_extra("onnx", extra="export")
    import_extra("onnxscript", extra="export")
    program = _traced(network, shape)
    with _quiet():
        exported = torch.onnx.export(
            program, input_names=["x"], output_names=["logits"], dynamo=True, verbose=False
        )
    assert exported is not None
    for node in exported.model.graph.all_nodes():
        node.metadata_props.clear()  # paths of this machine
    model = exported.model_proto
    onnx.helper.set_model_props(model, dict(texts))
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _torch(network: Network, shape: Sequence[int], texts: Mapping[str, str]) -> bytes:
    program = _traced(network, shape)
    file = io.BytesIO()
    with _quiet():
        torch.export.save(program, file, extra_files=dict(texts))
    return file.getvalue()


def _safetensors(
    network: Network,
    shape: Sequence[int],  # noqa: ARG001 - stands among the texts
    texts: Mapping[str, str],
) -> bytes:
    library = import_extra("safetensors.torch", extra="data")
    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    content: bytes = library.save(tensors, metadata={"format": "pt", **texts})
    return content


_WRITERS: dict[str, Callable[[Network, Sequence[int], Mapping[str, str]], bytes]] = {
    "onnx": _onnx,
    "torch": _torch,
    "safetensors": _safetensors,
}


def _traced(network: Network, shape: Sequence[int]) -> torch.export.ExportedProgram:
    """The network as a graph that takes any number of rows."""
    batch = torch.export.Dim("batch")
    example = torch.zeros(2, *shape)
    try:
        with _quiet():
            program = torch.export.export(network, (example,), dynamic_shapes=({0: batch},))
    except Exception as error:  # a network of the user's own may fail in any way
        reason = " ".join(str(error).split())[:200]
        raise ArgumentError(
            f"{type(network).__name__} cannot be traced ({reason}); export it as safetensors"
        ) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    return program


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what torch's exporters say about themselves from the user."""
    logger = logging.getLogger(_QUIET)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
