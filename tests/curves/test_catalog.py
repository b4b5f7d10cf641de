import dataclasses

import pytest
import torch

import imae.curves
from imae.curves import CURVES, GCE, IMAE, Curve, FromWeight, Scale, Sum, Window
from imae.errors import ArgumentError

ENTRIES = pytest.mark.parametrize("entry", CURVES, ids=lambda entry: entry.name)


def test_every_leaf_is_listed():
    listed = {entry.build for entry in CURVES}
    public = {
        value
        for value in (getattr(imae.curves, name) for name in dir(imae.curves))
        if isinstance(value, type)
    }
    leaves = {value for value in public if issubclass(value, Curve)}
    assert listed == leaves - {Curve, Sum, Scale, Window, FromWeight}


@ENTRIES
def test_an_entry_has_the_name_and_the_defaults_of_its_curve(entry):
    assert entry.name == entry.build.name
    fields = {field.name: field.default for field in dataclasses.fields(entry.build)}
    assert dict(entry.defaults) == fields
    assert CURVES.build(entry.name) == entry.build()


@ENTRIES
def test_a_summary_is_one_short_line(entry):
    assert 0 < len(entry.summary) <= 60
    assert "\n" not in entry.summary


def test_parameters_go_through():
    assert CURVES.build("imae", T=4.0) == IMAE(T=4.0)
    assert CURVES.build("gce", q=0.5).slope(torch.zeros(1)).item() == pytest.approx(
        GCE(q=0.5).slope(torch.zeros(1)).item()
    )


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("imea", {}, "did you mean imae"),
        ("gce", {"T": 1.0}, "takes q; got 'T'"),
        ("cce", {"q": 1.0}, "takes no arguments; got 'q'"),
        ("gce", {"q": 0.0}, "q must be in"),
    ],
)
def test_what_cannot_be_built_is_said(name, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        CURVES.build(name, **arguments)
