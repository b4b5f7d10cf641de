"""How long the first stage of a run is, for methods that change half-way."""


def first_stage(part: float, num_epochs: int) -> int:
    """Epochs of the first stage: its part of the run, at least one, and one left if there are two.

    Args:
        part: Part of the run, in (0, 1).
        num_epochs: Epochs of the whole run.

    Examples:
        >>> first_stage(0.25, 40), first_stage(0.01, 40), first_stage(0.99, 10), first_stage(0.5, 1)
        (10, 1, 9, 1)
    """
    return min(max(1, round(part * num_epochs)), max(1, num_epochs - 1))
