import math
import re
from collections.abc import Callable

import mpmath
import pytest
import torch
from torch import Tensor

from imae.curves import (
    AGCE,
    CCE,
    CURVES,
    DM,
    GCE,
    ICCE,
    IMAE,
    MAE,
    SL,
    Curve,
    Focal,
    ForwardSymmetric,
    FromWeight,
    Scale,
    SharpGCE,
    Sum,
    TruncatedGCE,
    Window,
)


def without_address(thing: object) -> str:
    """The name of a case, the same in every process."""
    return re.sub(r" at 0x\w+", "", repr(thing))[:70]


def even_weight(p: Tensor) -> Tensor:
    """A weight that a user might write: high where the label is uncertain, never 0."""
    return 0.5 + torch.exp(-((4 * p - 2) ** 2))


ALL: tuple[Curve, ...] = (
    *(entry.build(**entry.defaults) for entry in CURVES),
    IMAE(T=0.0),
    IMAE(T=30.0),
    GCE(q=0.05),
    GCE(q=1.0),
    SL(alpha=6.0, beta=0.1),
    Focal(gamma=0.5),
    AGCE(a=3.0, q=2.5),
    DM(beta=5.0, lam=3.0),
    ICCE(T=6.0),
    SharpGCE(T=20.0, q=0.7),
    ForwardSymmetric(rate=0.45, num_classes=2),
    Sum((CCE(), Scale(IMAE(T=8.0), 0.5))),
    Window(IMAE(T=8.0), low=-6.1, high=4.3),
    FromWeight(even_weight),
)


@pytest.fixture(scope="session")
def curves() -> tuple[Curve, ...]:
    """Every curve with its defaults, odd parameters and some curves made of curves."""
    return ALL


@pytest.fixture(scope="session", params=ALL, ids=without_address)
def curve(request: pytest.FixtureRequest) -> Curve:
    """One of the curves."""
    return request.param


@pytest.fixture(scope="session")
def edges() -> Callable[[Curve], list[float]]:
    """The margins at which the slope of a curve jumps."""

    def find(curve: Curve) -> list[float]:
        if isinstance(curve, TruncatedGCE):
            return [math.log(curve.k / (1 - curve.k))]
        return [curve.low, curve.high] if isinstance(curve, Window) else []

    return find


@pytest.fixture(scope="session")
def exact_slope() -> Callable[[Curve, mpmath.mpf], mpmath.mpf]:
    """The slope of a curve at a margin, from formulas in p written anew, to 60 digits."""
    return _exact_slope


@pytest.fixture
def generator() -> torch.Generator:
    """A generator with a seed."""
    return torch.Generator().manual_seed(20)


def _exact_slope(curve: Curve, m: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(m)))
        q = 1 / (1 + mpmath.exp(mpmath.mpf(m)))
        match curve:
            case CCE():
                return -q
            case MAE():
                return -2 * p * q
            case GCE():
                return -(p**curve.q) * q
            case TruncatedGCE():
                return -(p**curve.q) * q if p >= curve.k else mpmath.mpf(0)
            case SL():
                return -curve.alpha * q + curve.beta * curve.A * p * q
            case Focal():
                return q**curve.gamma * (curve.gamma * p * mpmath.log(p) - q)
            case AGCE():
                return -((curve.a + p) ** (mpmath.mpf(curve.q) - 1)) * p * q
            case ForwardSymmetric():
                spread = mpmath.mpf(curve.rate) / (curve.num_classes - 1)
                kept = 1 - mpmath.mpf(curve.rate)
                return -(kept - spread) * p * q / (kept * p + spread * q)
            case IMAE():
                return -mpmath.exp(curve.T * p * q) / 2
            case DM():
                return -mpmath.exp(curve.beta * p**curve.lam * q) / 2
            case SharpGCE():
                return -mpmath.expm1(curve.T * p**curve.q * q) / curve.T
            case ICCE():
                return -mpmath.exp(curve.T * q) / 2
            case FromWeight():
                return -(0.5 + mpmath.exp(-((4 * p - 2) ** 2))) / 2
            case Sum():
                return mpmath.fsum(_exact_slope(part, m) for part in curve.parts)
            case Scale():
                return curve.factor * _exact_slope(curve.curve, m)
            case Window():
                return (
                    _exact_slope(curve.curve, m) if curve.low <= m <= curve.high else mpmath.mpf(0)
                )
    raise ValueError(f"no formula for {curve}")
