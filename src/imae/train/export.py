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

import torch

from imae.errors import ArgumentError, check_choice, import_extra
from imae.methods.catalog import METHODS
from imae.models import Network
from imae.records.files import check_overwriting
from imae.train.predict import load_network, write_bytes
from imae.train.preparation import read_preparation
from imae.train.run import Run

_QUIET = "torch.onnx._internal.exporter._registration"  # logs each package that is missing


def export(
    run: Run | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    format: str = "onnx",
    which: str | None = None,
    overwrite: bool = False,
) -> None:
    """Writes the network of a run, in evaluation mode, for use without imae.

    ``onnx`` is a graph for ONNX runtimes; ``torch`` an exported program for ``torch.export.load``,
    which needs none of imae's code either; both take prepared inputs ``x``, shape (N, ...) for any
    N, and give logits, shape (N, C), with the cap that the method puts on them. ``safetensors``
    holds only the weights, by name.

    All of them include what is needed to use the network, each item as JSON text: ``class_names``,
    ``input_shape``, ``model``, ``output`` (a cap on the logits, if any) and ``preparation``, which
    says how rows become inputs. They are in the metadata of an ONNX or safetensors file, and in
    extra files of a torch program.

    Args:
        run: The run, or its folder.
        path: File to write.
        format: "onnx", "torch" or "safetensors".
        which: "best" on the held-out labels, or "final"; by default the best if there is one.
        overwrite: Whether an existing file is replaced.

    Raises:
        ArgumentError: If the format is unknown, the file exists, or the network cannot be traced.
        DataError: If there is no trained run.
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
    check_overwriting(Path(path), overwrite=overwrite)
    run = run if isinstance(run, Run) else Run(run)
    network = load_network(run, which)
    facts = describe(run)
    texts = {name: json.dumps(value) for name, value in facts.items()}
    write_bytes(Path(path), _WRITERS[format](network, facts["input_shape"], texts))


def describe(run: Run) -> dict[str, Any]:
    """What is needed to use the network of a run, as plain values for JSON.

    Returns:
        ``class_names``, ``input_shape`` (of one row), ``model`` (name and arguments), ``output``
        (``{"cap": 0.75}`` or ``{"bound": 5.0}`` if the logits pass ``imae.cap_logits`` or
        ``imae.bound_logits``, else None) and ``preparation``: means and deviations, for features
        in the units of their columns, for images per channel with pixels scaled to [0, 1].

    Raises:
        DataError: If the run folder does not say how its rows are prepared.
    """
    preparation = read_preparation(run.folder)
    method = run.config.method
    step = METHODS.build(method.name, **method.arguments).output()
    return {
        "class_names": list(preparation.class_names),
        "input_shape": list(preparation.input_shape),
        "model": {"name": run.config.model.name, "arguments": run.config.model.arguments},
        "output": None if step is None else {step.name: step.limit},
        "preparation": preparation.described,
    }


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
    _name_rows(model.graph)
    onnx.helper.set_model_props(model, dict(texts))
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _name_rows(graph: Any) -> None:
    """Calls the dimension of the rows "batch"; the exporter calls it s and a number."""
    made_up = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param == made_up:
                dimension.dim_param = "batch"


def _torch(network: Network, shape: Sequence[int], texts: Mapping[str, str]) -> bytes:
    program = _traced(network, shape)
    file = io.BytesIO()
    with _quiet():
        torch.export.save(program, file, extra_files=dict(texts))
    return file.getvalue()


def _safetensors(
    network: Network,
    shape: Sequence[int],  # noqa: ARG001 - is one of the texts
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
    """Silences what torch's exporters log about themselves."""
    logger = logging.getLogger(_QUIET)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
