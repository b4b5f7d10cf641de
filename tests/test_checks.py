import math

import numpy as np
import pytest

from imae.errors import (
    ArgumentError,
    DataError,
    check_choice,
    check_integer,
    check_interval,
    check_not_masked,
)


@pytest.mark.parametrize("value", [0, 0.5, 1])
def test_an_interval_takes_its_closed_ends(value):
    check_interval("q", value, low=0, high=1)


@pytest.mark.parametrize("value", [-1e-9, 1 + 1e-9, math.nan, math.inf])
def test_an_interval_refuses_what_is_outside(value):
    with pytest.raises(ValueError, match=r"q must be in \[0, 1\], got"):
        check_interval("q", value, low=0, high=1)


@pytest.mark.parametrize("value", ["0.5", None, True, [0.5]])
def test_an_interval_refuses_what_is_not_a_number(value):
    with pytest.raises(ValueError, match="q must be a number, got"):
        check_interval("q", value, low=0, high=1)


def test_a_number_of_hundreds_of_digits_is_too_large():
    with pytest.raises(ValueError, match=r"q must be in \[0, inf\], got 1000"):
        check_interval("q", 10**400, low=0)


@pytest.mark.parametrize(("value", "fits"), [(0, False), (1e-12, True), (1, False), (0.99, True)])
def test_an_open_interval_leaves_its_ends_out(value, fits):
    def check() -> None:
        check_interval("q", value, low=0, high=1, open_low=True, open_high=True)

    if fits:
        check()
    else:
        with pytest.raises(ValueError, match=r"q must be in \(0, 1\)"):
            check()


def test_an_integer_is_not_a_bool_and_not_a_float():
    check_integer("n", 2, low=2)
    for wrong in (True, 2.0, "2", None):
        with pytest.raises(ValueError, match="n must be an integer"):
            check_integer("n", wrong, low=0)
    with pytest.raises(ValueError, match="n must be at least 2, got 1"):
        check_integer("n", 1, low=2)


def test_a_choice_lists_what_there_is():
    check_choice("reduction", "mean", ("none", "mean"))
    with pytest.raises(ValueError, match="reduction must be one of none, mean, got 'men'"):
        check_choice("reduction", "men", ("none", "mean"))


def test_a_seed_of_all_bits_is_compared_as_it_is():
    check_interval("seed", 2**64 - 1, low=0, high=2**64, open_high=True)
    with pytest.raises(ValueError, match="seed must be in"):
        check_interval("seed", 2**64, low=0, high=2**64, open_high=True)


def test_several_numbers_are_not_one():
    with pytest.raises(ValueError, match="q must be one number"):
        check_interval("q", np.ones(2), low=0)
    with pytest.raises(ValueError, match="q must be a number"):
        check_interval("q", np.str_("8"), low=0)
    check_interval("q", np.float32(0.5), low=0, high=1)


def test_whole_bounds_are_written_out():
    with pytest.raises(
        ArgumentError, match=r"in \[0, 18446744073709551616\), got 18446744073709551616"
    ):
        check_interval("seed", 2**64, low=0, high=2**64, open_high=True)


def test_masked_values_are_refused():
    check_not_masked("x", np.ma.masked_array([1, 2], [False, False]))
    check_not_masked("x", [1, None])
    with pytest.raises(DataError, match="x: 2 values are masked, the first in row 1"):
        check_not_masked("x", np.ma.masked_greater(np.arange(4).reshape(2, 2), 1))
