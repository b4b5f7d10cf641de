import pytest

from imae.curves import CURVES, GCE, IMAE, SL, ForwardSymmetric, parse_curve


@pytest.mark.parametrize(
    ("text", "curve"),
    [
        ("imae", IMAE(T=8.0)),
        ("imae:T=0.5", IMAE(T=0.5)),
        ("gce:q=1", GCE(q=1.0)),
        ("sl:alpha=6,beta=0.1", SL(alpha=6.0, beta=0.1)),
        ("forward_symmetric:num_classes=100,rate=0.2", ForwardSymmetric(0.2, 100)),
    ],
)
def test_a_text_names_a_curve(text, curve):
    assert parse_curve(text) == curve


@pytest.mark.parametrize("name", CURVES.names())
def test_every_name_alone_is_enough(name):
    assert parse_curve(name).name == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "imaee",
        "imae:T",
        "imae:T=",
        "imae:T=x",
        "imae:q=1",
        "imae:=8",
        "gce:q=0",
        "imae:T=8,T=8",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"\w"):
        parse_curve(text)


def test_whole_numbers_stay_whole():
    with pytest.raises(ValueError, match=r"num_classes must be an integer, got '2\.5'"):
        parse_curve("forward_symmetric:num_classes=2.5")


def test_a_parameter_is_given_once():
    with pytest.raises(ValueError, match=r"'imae:T=8,T=16': T is given twice"):
        parse_curve("imae:T=8,T=16")
