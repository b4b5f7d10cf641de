import inspect
from pathlib import Path

import pytest

from imae.data.sources.catalog import SETS, SOURCES, named_set
from imae.errors import ArgumentError, DataError


def test_the_sets_that_were_promised_are_there() -> None:
    assert set(SOURCES.names()) >= {
        "digits",
        "mnist",
        "fashion_mnist",
        "cifar10",
        "cifar100",
        "cifar10n",
        "cifar100n",
        "clothing1m",
        "mars",
    }


@pytest.mark.parametrize("name", SOURCES.names())
def test_defaults_are_those_of_the_builder(name: str) -> None:
    entry = SOURCES.find(name)
    parameters = inspect.signature(entry.build.find()).parameters
    assert {key: value.default for key, value in parameters.items()} == dict(entry.defaults)


def test_digits_build_to_what_the_record_says() -> None:
    data = SOURCES.build("digits", root=None)
    item = named_set("digits")
    assert data.test is not None
    assert (len(data.train), len(data.test)) == item.rows
    assert data.num_classes == item.num_classes


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100", "clothing1m", "mars"])
def test_a_set_that_is_not_there_says_how_to_get_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"^{name} is not in {tmp_path}") as error:
        SOURCES.build(name, root=tmp_path)
    assert "\n" not in str(error.value)


def test_unknown_name_and_argument() -> None:
    with pytest.raises(ArgumentError, match="unknown data set 'cifar'; did you mean cifar10"):
        named_set("cifar")
    with pytest.raises(ArgumentError, match="'cifar10' takes root; got 'variant'"):
        SOURCES.build("cifar10", variant="fine")


@pytest.mark.parametrize("item", SETS, ids=lambda item: item.name)
def test_needed_sets_exist(item: object) -> None:
    for needed in item.needs:  # type: ignore[attr-defined]
        assert needed in SOURCES
