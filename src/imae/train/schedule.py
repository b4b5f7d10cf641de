"""The learning rate as a pure function of the step."""

import math

from imae.train.config import ScheduleConfig

_ONE_CYCLE_RISE = 0.3
_ONE_CYCLE_START = 1 / 25
_ONE_CYCLE_END = 1e-4 / 25


def factor(schedule: ScheduleConfig, step: int, total_steps: int) -> float:
    """What the learning rate is multiplied by at a step.

    Args:
        schedule: Shape of the learning rate.
        step: Optimiser step, from 0.
        total_steps: Steps of the whole run.

    Examples:
        >>> paper = ScheduleConfig(name="steps", at=(32000, 48000))
        >>> [factor(paper, step, 100000) for step in (31999, 32000, 48000)]
        [1.0, 0.1, 0.01]
    """
    warm_up = min(1.0, (step + 1) / (schedule.warm_up + 1))
    if schedule.name == "constant":
        return warm_up
    if schedule.name == "steps":
        return warm_up * divided(schedule, step)
    if schedule.name == "cosine":
        progress = max(0, step - schedule.warm_up) / max(1, total_steps - schedule.warm_up)
        return warm_up * cosine(progress, 1.0, 0.0)
    return one_cycle(step / total_steps)


def divided(schedule: ScheduleConfig, step: int) -> float:
    """One over ``divide_by`` for each time that the schedule has divided until this step."""
    if schedule.every is not None:
        times = step // schedule.every
    else:
        times = sum(step >= at for at in schedule.at)
    return float(schedule.divide_by**-times)


def shortened(schedule: ScheduleConfig, part: float) -> ScheduleConfig:
    """The schedule for a stage that is a part of the run, in (0, 1]: it divides as much earlier.

    Examples:
        >>> shortened(ScheduleConfig(name="steps", at=(32000, 48000)), 0.5).at
        (16000, 24000)
    """
    at = tuple(max(1, round(part * each)) for each in schedule.at)
    every = None if schedule.every is None else max(1, round(part * schedule.every))
    return schedule.model_copy(update={"at": at, "every": every})


def one_cycle(progress: float) -> float:
    """Up from 1/25 over the first 30% of the run, then down to almost nothing, along cosines.

    Args:
        progress: Part of the run that is done, in [0, 1).

    Reference:
        Smith and Topin, "Super-convergence", 2019; the numbers are those of torch's OneCycleLR.
    """
    if progress < _ONE_CYCLE_RISE:
        return cosine(progress / _ONE_CYCLE_RISE, _ONE_CYCLE_START, 1.0)
    return cosine((progress - _ONE_CYCLE_RISE) / (1 - _ONE_CYCLE_RISE), 1.0, _ONE_CYCLE_END)


def cosine(progress: float, start: float, end: float) -> float:
    """Half a cosine from ``start`` to ``end``.

    Examples:
        >>> cosine(0.0, 1.0, 0.0), cosine(0.5, 1.0, 0.0), cosine(1.0, 1.0, 0.0)
        (1.0, 0.5, 0.0)
    """
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * progress))
