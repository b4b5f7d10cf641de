import dataclasses
from pathlib import Path

import pytest

from imae.data.sources.catalog import SETS, NamedSet


@pytest.mark.parametrize("item", SETS, ids=lambda item: item.name)
def test_every_set_says_what_a_listing_needs(item: NamedSet) -> None:
    assert item.summary
    assert "\n" not in item.summary
    assert item.reference
    assert item.licence
    assert item.num_classes > 1
    assert all(number > 0 for number in item.rows)
    assert item.origins or item.by_hand
    assert "root" in item.defaults


def test_records_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SETS[0].name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("item", SETS, ids=lambda item: item.name)
def test_an_empty_root_has_only_what_is_installed(item: NamedSet, tmp_path: Path) -> None:
    place = item.locate(tmp_path)
    assert place is None or tmp_path not in place.parents
