import numpy as np
import pytest
import torch

from imae.errors import ArgumentError
from imae.noise.by_class import NoisyLabels, as_array, as_labels


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1, 2],
        (0, 1, 2),
        range(3),
        np.array([0, 1, 2], dtype=np.uint8),
        np.array([0, 1, 2], dtype=">i4"),
        torch.tensor([0, 1, 2]),
        torch.tensor([0, 1, 2], dtype=torch.uint8),
    ],
    ids=["list", "tuple", "range", "uint8", "big-endian", "tensor", "byte tensor"],
)
def test_every_form_of_labels_becomes_int64(labels):
    result = as_labels(labels, num_classes=3)
    assert result.dtype == np.dtype(np.int64)
    assert result.tolist() == [0, 1, 2]


def test_labels_are_copied():
    labels = np.array([0, 1, 2])
    as_labels(labels, num_classes=3)[0] = 2
    assert labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], r"shape \(N,\)"),
        ([[0, 1]], r"shape \(N,\)"),
        (3, r"shape \(N,\)"),
        ([0.0, 1.0], "integers, got float64"),
        ([True, False], "integers, got bool"),
        (["0", "1"], "integers, got <U1"),
        ([[0], [1, 2]], "array of numbers"),
        ([0, 3], r"\[0, 3\), got 3 at row 1"),
        ([0, 1, -1], r"\[0, 3\), got -1 at row 2"),
        (np.array([2**64 - 1], dtype=np.uint64), "got 18446744073709551615 at row 0"),
    ],
)
def test_bad_labels_are_refused(labels, message):
    with pytest.raises(ArgumentError, match=message):
        as_labels(labels, num_classes=3)


def test_the_largest_label_is_one_below_the_number_of_classes():
    assert as_labels([2], num_classes=3).tolist() == [2]


def test_one_class_is_refused_and_two_are_not():
    with pytest.raises(ArgumentError, match="num_classes must be at least 2, got 1"):
        as_labels([0], num_classes=1)
    assert as_labels([0], num_classes=2).tolist() == [0]


def test_a_tensor_that_needs_a_gradient_becomes_an_array():
    values = torch.ones(2, requires_grad=True)
    assert as_array("values", values).tolist() == [1.0, 1.0]


def test_brain_floats_become_single_precision():
    array = as_array("values", torch.tensor([0.5, 2.0], dtype=torch.bfloat16))
    assert array.dtype == np.float32
    assert array.tolist() == [0.5, 2.0]


def test_the_realised_rate_is_the_mean_of_the_mask():
    noisy = NoisyLabels(
        labels=np.array([1, 1, 0, 1]),
        is_flipped=np.array([True, False, False, False]),
        transition=np.eye(2),
        kind="made up",
        rate=0.3,
        seed=0,
    )
    assert noisy.realised_rate == 0.25
