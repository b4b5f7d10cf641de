import pytest

from imae.methods.method import is_selection_due


def renewals(num_epochs, **parts):
    return [
        epoch for epoch in range(num_epochs + 3) if is_selection_due(epoch, num_epochs, **parts)
    ]


def test_the_published_epochs_come_out():
    assert renewals(120, warm_up=1 / 3, every=1 / 12) == [40, 50, 60, 70, 80, 90, 100, 110]


@pytest.mark.parametrize(
    ("num_epochs", "expected"), [(1, []), (2, [1]), (3, [1, 2]), (9, [3, 4, 5, 6, 7, 8])]
)
def test_a_short_run_has_at_least_an_epoch_for_each_part(num_epochs, expected):
    assert renewals(num_epochs, warm_up=1 / 3, every=0.01) == expected


def test_a_warm_up_of_the_whole_run_leaves_nothing_to_renew():
    assert renewals(10, warm_up=1.0, every=0.1) == []
    assert renewals(10, warm_up=0.9, every=0.1) == [9]
