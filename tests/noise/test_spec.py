import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imae.errors import ArgumentError
from imae.noise.asymmetric import instance_dependent, pairs
from imae.noise.by_class import symmetric
from imae.noise.catalog import KINDS, NoiseSpec, apply, parse, parse_mapping

CLEAN = np.arange(200) % 4


@settings(deadline=None)  # a busy machine is no failure
@given(kind=st.sampled_from(KINDS.names()), rate=st.floats(0, 1, exclude_max=True))
def test_text_and_spec_are_the_same(kind, rate):
    spec = NoiseSpec(kind, rate)
    assert parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("symetric:0.4", "unknown noise 'symetric'; did you mean symmetric"),
        ("asymmetric:0.4", "cifar10_asymmetric"),
        ("zzz:0.4", "known: symmetric, uniform"),
        ("", "unknown noise ''"),
        ("symmetric", "KIND:RATE, for example symmetric:0.4, got 'symmetric'"),
        ("symmetric:", "KIND:RATE"),
        ("symmetric:much", "KIND:RATE"),
        ("symmetric:0.4:1", "KIND:RATE"),
        ("symmetric:1", r"rate must be in \[0, 1\), got 1.0"),
        ("symmetric:-0.1", r"rate must be in \[0, 1\), got -0.1"),
        ("symmetric:nan", r"rate must be in \[0, 1\), got nan"),
    ],
)
def test_bad_texts_are_refused(text, message):
    with pytest.raises(ArgumentError, match=message):
        parse(text)


@pytest.mark.parametrize("text", ["symmetric:0", "symmetric:0.999999"])
def test_the_ends_of_the_rate_are_let_pass(text):
    assert parse(text).kind == "symmetric"


def test_apply_is_the_function_of_that_name():
    given_labels = apply("symmetric:0.4", CLEAN, num_classes=4, seed=3).labels
    expected = symmetric(CLEAN, rate=0.4, num_classes=4, seed=3).labels
    assert np.array_equal(given_labels, expected)


def test_apply_hands_on_what_a_kind_needs():
    features = np.ones((200, 2))
    mapped = apply("pairs:0.4", CLEAN, num_classes=4, seed=3, mapping={1: 2}, exact=True)
    expected = pairs(CLEAN, rate=0.4, num_classes=4, seed=3, mapping={1: 2}, exact=True)
    assert np.array_equal(mapped.labels, expected.labels)
    spec = NoiseSpec("instance_dependent", 0.4)
    seen = apply(spec, CLEAN, num_classes=4, seed=3, features=features)
    wanted = instance_dependent(CLEAN, rate=0.4, num_classes=4, seed=3, features=features)
    assert np.array_equal(seen.labels, wanted.labels)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("pairs:0.4", {}, "noise 'pairs' needs mapping"),
        ("instance_dependent:0.4", {}, "noise 'instance_dependent' needs features"),
        ("symmetric:0.4", {"mapping": {0: 1}}, "'symmetric' takes exact; got 'mapping'"),
        (
            "instance_dependent:0.4",
            {"exact": True, "features": [[1.0]]},
            "'instance_dependent' takes features; got 'exact'",
        ),
    ],
)
def test_missing_and_superfluous_options_are_refused(text, options, message):
    with pytest.raises(ArgumentError, match=message):
        apply(text, CLEAN, num_classes=4, seed=1, **options)


@pytest.mark.parametrize(
    ("text", "names", "mapping"),
    [
        ("9:1,2:0", [f"class {k}" for k in range(10)], {9: 1, 2: 0}),
        ("cat:dog, dog:cat", ["cat", "dog"], {0: 1, 1: 0}),
        ("cat:1", ["cat", "dog"], {0: 1}),
        ("1:2", ["1", "2", "3"], {0: 1}),  # names come before numbers
    ],
)
def test_maps_by_name_and_number(text, names, mapping):
    assert parse_mapping(text, names) == mapping


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "FROM:TO"),
        ("0", "FROM:TO"),
        ("0:1,", "FROM:TO"),
        ("0:1:2", "FROM:TO"),
        ("0:2", "'2', which is none of the 2 classes; take a class name or a number from 0 to 1"),
        ("bird:0", "'bird', which is none of the 2 classes"),
        ("-1:0", "'-1', which is none of the 2 classes"),
        ("0:1,cat:1", "once"),
    ],
)
def test_bad_maps_are_refused(text, message):
    with pytest.raises(ArgumentError, match=message):
        parse_mapping(text, ["cat", "dog"])
