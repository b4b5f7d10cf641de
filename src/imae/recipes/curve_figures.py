"""Losses as curves over the probability of the given label."""

from pathlib import Path

import torch

from imae.curves import Curve
from imae.report.figures import save_lines


def draw_weights(out: Path, name: str, title: str, chosen: dict[str, Curve]) -> list[Path]:
    """Draws the weight of an example against the probability of its label."""
    p = torch.linspace(0, 1, 401, dtype=torch.float64)
    lines = {label: curve.weight(p).numpy() for label, curve in chosen.items()}
    return save_lines(
        out,
        name,
        p.numpy(),
        lines,
        title=title,
        x_label="probability of the given label",
        y_label="weight ||dL/dz||₁",
    )


def draw_values(out: Path, name: str, chosen: dict[str, Curve]) -> list[Path]:
    """Draws the losses themselves, each counted from p = 1/2."""
    # Every value is shown from p = 1/2 on, as IMAE's has no other anchor.
    p = torch.linspace(0.005, 0.995, 397, dtype=torch.float64)
    zero = torch.zeros(1, dtype=torch.float64)
    lines = {
        label: (curve.value(torch.logit(p)) - curve.value(zero)).numpy()
        for label, curve in chosen.items()
    }
    return save_lines(
        out,
        name,
        p.numpy(),
        lines,
        title="Loss, counted from p = 1/2",
        x_label="probability of the given label",
        y_label="L(p) - L(1/2)",
    )
