"""The named data sets: a record of each, fetching and verifying them."""

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imae._registry import Catalog, Entry, Imported
from imae.data.sources.download import Origin, PackageOrigin, data_root
from imae.data.sources.origins import (
    CIFAR10_ORIGINS,
    CIFAR10N_ORIGINS,
    CIFAR100_ORIGINS,
    CIFAR100N_ORIGINS,
    FASHION_MNIST_ORIGINS,
    MNIST_ORIGINS,
)
from imae.errors import DataError

if TYPE_CHECKING:
    from imae.data.split import Data


@dataclass(frozen=True)
class NamedSet:
    """One data set that can be loaded by name.

    Args:
        name: Name on the command line.
        summary: One line for listings.
        reference: Author, title, venue and year.
        licence: What its authors allow, in a few words.
        rows: Number of rows of each part, training first.
        num_classes: Number of classes.
        build: Makes the data; takes the keywords in ``defaults``.
        locate: Where the set is below a root, or None.
        verify: Digests of the set on disk; raises if it is not the published one.
        defaults: Keywords of ``build`` with their usual values.
        origins: Where it can be fetched from, in the order to try; none if by hand only.
        by_hand: How to get it where there is no origin.
        needs: Names of sets to fetch first.
        has_hashes: Whether hashes are published; if not, ``verify`` only finds missing files.
    """

    name: str
    summary: str
    reference: str
    licence: str
    rows: tuple[int, ...]
    num_classes: int
    build: "Callable[..., Data]"
    locate: Callable[[Path], Path | None]
    verify: Callable[[Path], dict[str, str]]
    defaults: Mapping[str, Any] = field(default_factory=lambda: {"root": None})
    origins: tuple[Origin, ...] = ()
    by_hand: str = ""
    needs: tuple[str, ...] = ()
    has_hashes: bool = True


def _in(module: str, name: str) -> Imported:
    return Imported(f"imae.data.sources.{module}:{name}")


_KRIZHEVSKY = (
    "Krizhevsky, Learning multiple layers of features from tiny images, University of Toronto 2009"
)
_WEI = (
    "Wei et al., Learning with noisy labels revisited: a study using real-world human "
    "annotations, ICLR 2022"
)

SETS: tuple[NamedSet, ...] = (
    NamedSet(
        name="digits",
        summary="handwritten digits, 8 x 8, inside scikit-learn",
        reference="Alpaydin and Kaynak, Optical recognition of handwritten digits, UCI 1998",
        licence="CC BY 4.0",
        rows=(1_442, 355),
        num_classes=10,
        build=_in("digits", "digits"),
        locate=_in("digits", "locate_digits"),
        verify=_in("digits", "verify_digits"),
        origins=(PackageOrigin("scikit-learn", "sklearn.datasets"),),
    ),
    NamedSet(
        name="mnist",
        summary="handwritten digits, 28 x 28",
        reference=(
            "LeCun et al., Gradient-based learning applied to document recognition, "
            "Proceedings of the IEEE 1998"
        ),
        licence="CC BY-SA 3.0",
        rows=(60_000, 10_000),
        num_classes=10,
        build=_in("digits", "mnist"),
        locate=_in("digits", "MNIST.locate"),
        verify=_in("digits", "MNIST.verify"),
        origins=MNIST_ORIGINS,
    ),
    NamedSet(
        name="fashion_mnist",
        summary="clothes, 28 x 28",
        reference="Xiao, Rasul and Vollgraf, Fashion-MNIST, arXiv:1708.07747, 2017",
        licence="MIT",
        rows=(60_000, 10_000),
        num_classes=10,
        build=_in("digits", "fashion_mnist"),
        locate=_in("digits", "FASHION_MNIST.locate"),
        verify=_in("digits", "FASHION_MNIST.verify"),
        origins=FASHION_MNIST_ORIGINS,
    ),
    NamedSet(
        name="cifar10",
        summary="photos of objects and animals, 32 x 32",
        reference=_KRIZHEVSKY,
        licence="none stated; cite the report",
        rows=(50_000, 10_000),
        num_classes=10,
        build=_in("cifar", "cifar10"),
        locate=_in("cifar", "CIFAR10.locate"),
        verify=_in("cifar", "CIFAR10.verify"),
        origins=CIFAR10_ORIGINS,
    ),
    NamedSet(
        name="cifar100",
        summary="photos of objects and animals, 32 x 32; variant fine, coarse or half",
        reference=_KRIZHEVSKY,
        licence="none stated; cite the report",
        rows=(50_000, 10_000),
        num_classes=100,
        build=_in("cifar", "cifar100"),
        locate=_in("cifar", "CIFAR100.locate"),
        verify=_in("cifar", "CIFAR100.verify"),
        defaults={"root": None, "variant": "fine"},
        origins=CIFAR100_ORIGINS,
    ),
    NamedSet(
        name="cifar10n",
        summary="cifar10 under human labels; variant worst, aggregate, random1, random2 or random3",
        reference=_WEI,
        licence="labels CC BY-NC 4.0",
        rows=(50_000, 10_000),
        num_classes=10,
        build=_in("cifar_n", "cifar10n"),
        locate=_in("cifar_n", "CIFAR10N.locate"),
        verify=_in("cifar_n", "CIFAR10N.verify"),
        defaults={"root": None, "variant": "worst"},
        origins=CIFAR10N_ORIGINS,
        needs=("cifar10",),
    ),
    NamedSet(
        name="cifar100n",
        summary="cifar100 under human labels; variant fine or coarse",
        reference=_WEI,
        licence="labels CC BY-NC 4.0",
        rows=(50_000, 10_000),
        num_classes=100,
        build=_in("cifar_n", "cifar100n"),
        locate=_in("cifar_n", "CIFAR100N.locate"),
        verify=_in("cifar_n", "CIFAR100N.verify"),
        defaults={"root": None, "variant": "fine"},
        origins=CIFAR100N_ORIGINS,
        needs=("cifar100",),
    ),
    NamedSet(
        name="clothing1m",
        summary="photos of clothes under labels from the web; variant noisy, clean or both",
        reference=(
            "Xiao et al., Learning from massive noisy labeled data for image classification, "
            "CVPR 2015"
        ),
        licence="research only, on request",
        rows=(1_000_000, 14_313, 10_526),
        num_classes=14,
        build=_in("photo_sets", "clothing1m"),
        locate=_in("photo_sets", "locate_clothing1m"),
        verify=_in("photo_sets", "verify_clothing1m"),
        defaults={"root": None, "variant": "noisy"},
        by_hand="ask its authors for it, and put its lists and images in ROOT/clothing1m",
        has_hashes=False,
    ),
    NamedSet(
        name="mars",
        summary="people filmed by six cameras, for retrieval",
        reference=(
            "Zheng et al., MARS: a video benchmark for large-scale person re-identification, "
            "ECCV 2016"
        ),
        licence="research only",
        rows=(509_914,),
        num_classes=625,
        build=_in("photo_sets", "mars"),
        locate=_in("photo_sets", "locate_mars"),
        verify=_in("photo_sets", "verify_mars"),
        by_hand="download it from its authors' page, and put bbox_train, bbox_test and info in "
        "ROOT/mars",
        has_hashes=False,
    ),
)

SOURCES: "Catalog[Data]" = Catalog(
    "data set",
    tuple(
        Entry(item.name, item.build, item.summary, item.reference, item.defaults) for item in SETS
    ),
)
"""The named sets: ``SOURCES.build("cifar10n", root=..., variant="worst")``."""


def named_set(name: str) -> NamedSet:
    """The record of the set of this name.

    Raises:
        ArgumentError: If there is none; the message suggests the nearest names.

    Examples:
        >>> named_set("cifar10").num_classes
        10
    """
    SOURCES.find(name)
    return next(item for item in SETS if item.name == name)


def fetch(name: str, root: str | os.PathLike[str] | None = None) -> Path:
    """Downloads a named set below ``root``, unless it is already there, and returns its path.

    Origins are tried in order until one has the published set. Files that are not the
    published ones are removed. If all fail, an incomplete download is kept and the next call
    resumes it.

    Args:
        name: Name of the set.
        root: Folder of the data sets, or None for the default one.

    Raises:
        ArgumentError: If no set has this name.
        DataError: If no origin has the set, with the reason of each; if the set has to be
            downloaded by hand; or if existing files are not the published set.

    Examples:
        >>> fetch("digits").name
        'sklearn'
    """
    item = named_set(name)
    folder = data_root(root)
    for needed in item.needs:
        fetch(needed, folder)
    return fetch_set(item, folder)


def verify(name: str, root: str | os.PathLike[str] | None = None) -> dict[str, str]:
    """SHA-256 of each decoded array of a named set, checked against the published one if any.

    Args:
        name: Name of the set.
        root: Folder of the data sets, or None for the default one.

    Raises:
        ArgumentError: If no set has this name.
        DataError: If the set is missing, is damaged, or is not the published one.

    Examples:
        >>> sorted(verify("digits"))
        ['images', 'labels']
    """
    return named_set(name).verify(data_root(root))


def fetch_set(item: NamedSet, root: Path) -> Path:
    """What `fetch` does for one set, without those that it needs."""
    found = item.locate(root)
    if found is not None:
        item.verify(root)
        return found
    if not item.origins:
        raise DataError(f"{item.name} cannot be fetched: {item.by_hand}")
    failures = []
    for origin in item.origins:
        paths: tuple[Path, ...] = ()
        try:
            paths = origin.fetch(root / item.name)
            item.verify(root)
        except (DataError, OSError) as error:
            for path in paths:
                path.unlink(missing_ok=True)
            reason = " ".join(str(error).split())
            failures.append(reason if origin.label in reason else f"{origin.label}: {reason}")
            continue
        for part in (root / item.name).glob("*.part"):  # of an origin that failed
            part.unlink()
        place = item.locate(root)
        assert place is not None
        return place
    with contextlib.suppress(OSError):  # it is not empty if a download can be resumed
        (root / item.name).rmdir()
    raise DataError(f"{item.name}: no source worked: {'; '.join(failures)}")
