import re

import pytest

from imae.data.sources import cifar, cifar_n, digits, origins
from imae.data.sources.download import WebOrigin
from imae.data.sources.image_set import ImageSet
from imae.data.sources.origins import DebianOrigin, NpmOrigin

ORIGINS = {
    "cifar10": origins.CIFAR10_ORIGINS,
    "cifar100": origins.CIFAR100_ORIGINS,
    "mnist": origins.MNIST_ORIGINS,
    "fashion_mnist": origins.FASHION_MNIST_ORIGINS,
}
SETS: dict[str, ImageSet] = {
    item.name: item for item in (cifar.CIFAR10, cifar.CIFAR100, digits.MNIST, digits.FASHION_MNIST)
}


@pytest.mark.parametrize("name", ORIGINS)
def test_downloads_are_pinned_by_hash(name: str) -> None:
    for origin in ORIGINS[name]:
        if isinstance(origin, WebOrigin):
            hashes = [file.sha256 or "" for file in origin.files]
        else:
            hashes = [origin.sha256] if isinstance(origin, NpmOrigin) else []
        for value in hashes:
            assert re.fullmatch("[0-9a-f]{64}", value)


@pytest.mark.parametrize("name", ORIGINS)
def test_what_an_origin_leaves_is_what_a_layout_reads(name: str) -> None:
    layouts = SETS[name].layouts
    for origin in ORIGINS[name]:
        if isinstance(origin, NpmOrigin):
            left = {f"{origin.package}-{origin.version}.tgz"}
        elif isinstance(origin, DebianOrigin):
            left = set(origin.files)
        else:
            left = {file.name for file in origin.files}
        assert any(left == {layout.archive} or left == set(layout.files) for layout in layouts)


@pytest.mark.parametrize(
    ("origins", "item"),
    [
        (origins.CIFAR10N_ORIGINS, cifar_n.CIFAR10N),
        (origins.CIFAR100N_ORIGINS, cifar_n.CIFAR100N),
    ],
)
def test_human_labels_come_from_a_fixed_commit(
    origins: tuple[WebOrigin, ...], item: cifar_n.HumanLabels
) -> None:
    for origin in origins:
        (file,) = origin.files
        assert re.search("/[0-9a-f]{40}/", file.url)
        assert file.name in item.files
        assert item.digests
