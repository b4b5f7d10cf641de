import ast
import math
import operator
import re
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch

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


LEAVES: tuple[Curve, ...] = (
    *(entry.build(**entry.defaults) for entry in CURVES),
    IMAE(T=0.0),
    IMAE(T=0.5),
    IMAE(T=30.0),
    GCE(q=1e-3),
    GCE(q=1.0),
    TruncatedGCE(q=1.0, k=0.1),
    SL(alpha=6.0, beta=0.1),
    SL(alpha=0.0, beta=1.0, A=-0.5),
    Focal(gamma=0.0),
    Focal(gamma=0.5),
    AGCE(a=3.0, q=2.5),
    DM(beta=0.0),
    DM(beta=5.0, lam=3.0),
    ICCE(T=0.0),
    SharpGCE(T=1e-3, q=0.7),
    SharpGCE(T=12.0, q=1.0),
    SharpGCE(T=8.0, q=0.3),
    ICCE(T=8.0),
    ForwardSymmetric(rate=0.0, num_classes=2),
    ForwardSymmetric(rate=0.49, num_classes=2),
    ForwardSymmetric(rate=0.8, num_classes=100),
)
COMPOUND: tuple[Curve, ...] = (
    Sum((CCE(), Scale(MAE(), 0.5), IMAE(T=2.0))),
    Scale(IMAE(T=8.0), 3.0),
    Scale(CCE(), 0.0),
    Window(IMAE(T=8.0), low=-6.1, high=4.3),
    Window(Sum((CCE(), MAE())), high=16.0),
    FromWeight(torch.exp),
)

_FUNCTIONS = {"exp": mpmath.exp, "log": mpmath.log}
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


@pytest.fixture(scope="session", params=LEAVES, ids=without_address)
def leaf(request: pytest.FixtureRequest) -> Curve:
    """Every published curve, with its defaults and with odd parameters."""
    return request.param


@pytest.fixture(scope="session", params=LEAVES + COMPOUND, ids=without_address)
def curve(request: pytest.FixtureRequest) -> Curve:
    """Every leaf, and some curves made of curves."""
    return request.param


@pytest.fixture(scope="session")
def printed_weight() -> Callable[[Curve, mpmath.mpf], mpmath.mpf]:
    """Evaluates the line ``w(p) = ...`` of a leaf's docstring at a margin, to many digits."""

    def evaluate(curve: Curve, m: float) -> mpmath.mpf:
        line = re.search(r"^ *w\(p\) += (.+)$", type(curve).__doc__ or "", re.MULTILINE)
        assert line, f"{type(curve).__name__} prints no weight"
        with mpmath.workdps(80):
            names = {name: mpmath.mpf(value) for name, value in vars(curve).items()}
            names["p"] = 1 / (1 + mpmath.exp(-mpmath.mpf(m)))
            if isinstance(curve, ForwardSymmetric):
                names["r"] = names["rate"]
                names["e"] = names["rate"] / (names["num_classes"] - 1)
            return _evaluate(ast.parse(_with_signs(line[1]), mode="eval").body, names)

    return evaluate


@pytest.fixture(scope="session")
def away_from_edges() -> Callable[[Curve, torch.Tensor], torch.Tensor]:
    """Drops the margins at which a curve jumps."""

    def keep(curve: Curve, m: torch.Tensor) -> torch.Tensor:
        edges = [getattr(curve, name, math.inf) for name in ("low", "high")]
        if isinstance(curve, TruncatedGCE):
            edges.append(math.log(curve.k / (1 - curve.k)))
        return m[[all(abs(x - edge) > 1e-3 for edge in edges) for x in m.tolist()]]

    return keep


def _with_signs(formula: str) -> str:
    """A formula with its powers and products in Python's signs: ``2 p^q`` is ``2 * p**q``."""
    formula = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", formula.replace("^", "**"))
    return re.sub(r" \* (if|else) \* ", r" \1 ", formula)


def _evaluate(node: ast.expr, names: dict[str, Any]) -> Any:
    match node:
        case ast.Constant(value):
            return mpmath.mpf(value)
        case ast.Name(name):
            return names[name]
        case ast.BinOp(left, sign, right):
            return _OPERATORS[type(sign)](_evaluate(left, names), _evaluate(right, names))
        case ast.Call(ast.Name(function), [argument]):
            return _FUNCTIONS[function](_evaluate(argument, names))
        case ast.IfExp(ast.Compare(left, [ast.GtE()], [right]), body, otherwise):
            holds = _evaluate(left, names) >= _evaluate(right, names)
            return _evaluate(body if holds else otherwise, names)
    raise ValueError(f"not a plain formula: {ast.unparse(node)}")
