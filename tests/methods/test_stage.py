import pytest

from imae.methods.method import first_stage


@pytest.mark.parametrize(
    ("part", "num_epochs", "expected"),
    [
        (0.5, 2, 1),
        (0.25, 40, 10),
        (0.001, 40, 1),
        (0.999, 40, 39),
        (0.999, 1, 1),
        (0.625, 320, 200),
    ],
)
def test_it_is_a_part_of_the_run_and_leaves_a_second_stage(part, num_epochs, expected):
    assert first_stage(part, num_epochs) == expected
