import ast
import math
import re
from pathlib import Path

import pytest
import torch

import imae.curves
import imae.losses
from imae.curves import CCE, IMAE, MAE, Window
from imae.losses.margin import (
    batch_weight,
    margin,
    margins,
    precise,
    value_at_margin,
    weight_at_margin,
)

INF = math.inf


def plain_margin(row, label):
    others = [z for j, z in enumerate(row) if j != label]
    top = max(others)
    return row[label] - top - math.log(sum(math.exp(z - top) for z in others))


@pytest.mark.parametrize("shape", [(6, 5), (4, 5, 3), (2, 5, 3, 2)])
def test_margin_is_that_of_a_loop(generator, shape):
    logits = 5 * torch.randn(shape, generator=generator, dtype=torch.float64)
    target = torch.randint(5, shape[:1] + shape[2:], generator=generator)
    result = margin(logits, target)
    assert result.shape == target.shape
    rows = logits.movedim(1, -1).reshape(-1, 5).tolist()
    expected = [
        plain_margin(row, y) for row, y in zip(rows, target.flatten().tolist(), strict=True)
    ]
    assert result.flatten().tolist() == pytest.approx(expected, rel=1e-13)


def test_margin_is_the_log_odds(generator):
    logits = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    target = torch.tensor([0, 1, 2, 3, 4, 0])
    p = logits.softmax(1)[torch.arange(6), target]
    torch.testing.assert_close(margin(logits, target), torch.logit(p))


def test_margin_is_exact_where_the_probability_rounds_to_one():
    assert margin(torch.tensor([[20.0, 0.0, 0.0]]), torch.tensor([0])).item() == pytest.approx(
        20 - math.log(2), rel=1e-7
    )


@pytest.mark.parametrize(
    ("row", "label", "expected"),
    [
        ([1.0], 0, INF),
        ([1.0, -INF], 0, INF),
        ([-INF, 1.0], 0, -INF),
        ([-INF, -INF], 0, math.nan),
        ([INF, 0.0], 0, math.nan),
        ([0.0, INF], 0, math.nan),
        ([INF], 0, math.nan),
        ([math.nan, 0.0], 0, math.nan),
        ([0.0, math.nan], 0, math.nan),
        ([3e38, 0.0], 0, 3e38),
        ([0.0, 3e38, -3e38], 0, -3e38),
    ],
)
def test_margin_of_odd_rows(row, label, expected):
    result = margin(torch.tensor([row]), torch.tensor([label])).item()
    assert result == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("offset", [1e3, 1e5, 1e7, -1e7])
def test_a_constant_added_to_all_logits_changes_no_margin_and_no_gradient(offset, curve):
    logits, target = torch.tensor([[1.0, 0.0, 2.0, -1.0]]), torch.tensor([0])

    def loss(z):
        return value_at_margin(margin(z, target), curve).sum()

    assert torch.equal(margin(logits + offset, target), margin(logits, target))
    assert torch.equal(margins(logits + offset), margins(logits))
    assert torch.equal(torch.func.grad(loss)(logits + offset), torch.func.grad(loss)(logits))


@pytest.mark.parametrize("size", [3e38, -3e38])
def test_the_margin_of_equal_logits_is_that_of_zeros(size):
    target = torch.tensor([0])
    assert torch.equal(margin(torch.full((1, 3), size), target), margin(torch.zeros(1, 3), target))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_margins_are_the_margin_of_each_class(generator, dtype):
    logits = 6 * torch.randn(7, 5, 3, generator=generator).to(dtype)
    result = margins(logits)
    for label in range(5):
        expected = margin(logits, torch.full((7, 3), label))
        torch.testing.assert_close(result[:, label], expected)


@pytest.mark.parametrize(
    "row", [[0.0, 0.0], [100.0, 0.0, -100.0], [1e4, 1e4, 0.0], [5.0], [3e38, 0.0], [0.0, -INF, 1.0]]
)
def test_margins_of_odd_rows(row):
    logits = torch.tensor([row])
    expected = torch.stack([margin(logits, torch.tensor([k])) for k in range(len(row))], 1)
    torch.testing.assert_close(margins(logits), expected)


def test_margins_differentiate(generator):
    logits = torch.randn(2, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(margins, logits)
    assert torch.autograd.gradgradcheck(margins, logits)


def test_value_at_margin_has_the_slope_for_derivative(curve):
    m = torch.tensor([-3.0, 0.7, 2.0, INF], dtype=torch.float64, requires_grad=True)
    value = value_at_margin(m, curve)
    (gradient,) = torch.autograd.grad(value.sum(), m)
    assert value[-1].item() == 0
    assert gradient[-1].item() == 0
    torch.testing.assert_close(value[:-1], curve.value(m[:-1]))
    torch.testing.assert_close(gradient[:-1], curve.slope(m[:-1]).detach())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own forward mode
def test_value_at_margin_differentiates_twice_in_both_modes(curve):
    m = torch.tensor([-3.0, 0.7, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda m: value_at_margin(m, curve), m, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda m: value_at_margin(m, curve), m)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own forward mode
def test_value_at_margin_differentiates_forward_more_than_once(curve):
    m = torch.linspace(-6.05, 6.0, 7, dtype=torch.float64)

    def total(each):
        return value_at_margin(each, curve).sum()

    def slope(each):
        return curve.slope(each).sum()

    jacfwd, jacrev = torch.func.jacfwd, torch.func.jacrev
    torch.testing.assert_close(jacfwd(jacfwd(total))(m), jacrev(jacrev(total))(m))
    third = jacfwd(jacfwd(jacfwd(total)))(m).sum((1, 2))
    torch.testing.assert_close(third, jacrev(jacrev(slope))(m).sum(1))


def test_weight_at_margin_has_no_gradient(curve):
    m = torch.tensor([-3.0, 0.7, INF], requires_grad=True)
    weight = weight_at_margin(m, curve)
    assert not weight.requires_grad
    assert weight[-1].item() == 0
    torch.testing.assert_close(weight[:-1], -2 * curve.slope(m[:-1]).detach())


def test_batch_weight():
    weights = torch.tensor([1.0, 3.0, 8.0])
    assert batch_weight(weights, 0.7).item() == 4
    assert batch_weight(weights, torch.tensor([1.0, 1.0, 0.0])).item() == 2
    assert batch_weight(torch.zeros(3), 1.0).item() == 1
    assert batch_weight(weights, torch.zeros(3)).item() == 1


def test_half_precision_alone_is_widened():
    for dtype in (torch.float16, torch.bfloat16):
        assert precise(torch.zeros(1, dtype=dtype)).dtype == torch.float32
    for dtype in (torch.float32, torch.float64):
        z = torch.zeros(1, dtype=dtype)
        assert precise(z) is z


def test_window_and_infinite_margin():
    m = torch.tensor([INF, 10.0, 0.0])
    assert value_at_margin(m, Window(CCE(), high=1.0))[0].item() == 0
    assert weight_at_margin(m, Window(MAE(), high=1.0)).tolist() == [0, 0, 1]
    assert weight_at_margin(m, IMAE(T=0.0)).tolist() == [0, 1, 1]


# What makes gradients wrong at large margins must not be written anywhere in the two packages.
FORBIDDEN = {
    "a softmax that is clamped": r"softmax\([^\n]*\)\.cl(amp|ip)|cl(amp|ip)_?\([^\n]*softmax",
    "an epsilon": r"\beps\b|\bepsilon\b|(?<![\w.])\d*\.?\d*e-\d+",
    "a division by 1 - p": r"/ ?\(1(\.0)? - p",
}
# Tolerances of comparisons: they are added to nothing.
ALLOWED = re.compile(r"\b(atol|rel_tol)=1e-0\d")
SOURCES = [
    path
    for package in (imae.curves, imae.losses)
    for path in sorted(Path(package.__file__).parent.glob("*.py"))
]


def offences(source):
    """What a source text does that it must not, comments and docstrings left aside."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant("")
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            node.value = _WithExponent(node.value)
    code = ALLOWED.sub("", ast.unparse(tree))
    return [name for name, pattern in FORBIDDEN.items() if re.search(pattern, code)]


class _WithExponent(float):
    """A number that prints as 1e-03 and so on where it is small, and plainly otherwise."""

    def __repr__(self):
        return f"{float(self):.0e}" if 0 < abs(self) < 1e-3 else float.__repr__(self)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_clamp_no_epsilon_no_division_by_a_vanishing_number(path):
    assert offences(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "p = z.softmax(1).clamp(min=0.1)",
        "p = torch.clamp(torch.softmax(z, 1), 0.1, 1)",
        "loss = -(p + 1e-7).log()",
        "loss = -(p + 0.00001).log()",
        "w = a / (b + eps)",
        "w = exp(T) / (2 * p) / (1 - p)",
    ],
)
def test_the_guard_can_fail(source):
    assert offences(source)
    assert not offences(f'"""{source}"""')
