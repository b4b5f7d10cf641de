"""When a method looks at all rows again, as parts of a run of any length."""


def is_renewal(epoch: int, num_epochs: int, *, warm_up: float, every: float) -> bool:
    """Whether what is known of the rows is to be renewed before this epoch, counted from 0.

    The first renewal comes after ``warm_up * num_epochs`` epochs, further ones ``every *
    num_epochs`` epochs apart, each rounded to whole epochs and at least one; none comes after the
    last epoch, where nothing is trained any more.

    Args:
        epoch: The epoch that comes next.
        num_epochs: Epochs of the whole run.
        warm_up: Part of the run before the first renewal, in (0, 1].
        every: Part of the run between two renewals, in (0, 1].

    Examples:
        >>> [epoch for epoch in range(12) if is_renewal(epoch, 12, warm_up=0.5, every=0.25)]
        [6, 9]
    """
    first = max(1, round(warm_up * num_epochs))
    apart = max(1, round(every * num_epochs))
    return first <= epoch < num_epochs and (epoch - first) % apart == 0
