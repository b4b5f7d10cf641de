import pytest

from imae._registry import Catalog, Entry

NUMBERS = Catalog(
    "number",
    (Entry("one", lambda: 1, "the unit"), Entry("times", lambda a: a, "itself", "", {"a": 2})),
)


def test_builds_from_defaults_and_arguments():
    assert NUMBERS.build("times") == 2
    assert NUMBERS.build("times", a=5) == 5


def test_is_a_collection_in_listing_order():
    assert NUMBERS.names() == ("one", "times")
    assert [entry.name for entry in NUMBERS] == ["one", "times"]
    assert len(NUMBERS) == 2
    assert "one" in NUMBERS
    assert "two" not in NUMBERS


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ValueError, match=r"unknown number 'tims'; did you mean times\?"):
        NUMBERS.build("tims")
    with pytest.raises(ValueError, match="known: one, times"):
        NUMBERS.find("zzz")


def test_an_unknown_argument_is_refused():
    with pytest.raises(ValueError, match="number 'times' takes a; got 'b'"):
        NUMBERS.build("times", b=1)
    with pytest.raises(ValueError, match="takes no arguments; got 'a'"):
        NUMBERS.build("one", a=1)


def test_names_are_unique():
    with pytest.raises(ValueError, match="duplicate number: one"):
        Catalog("number", (Entry("one", int, ""), Entry("one", int, "")))
