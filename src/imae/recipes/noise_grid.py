"""Cells for every noise rate and method of a table."""

from collections.abc import Sequence

from imae.recipes.losses import method, title
from imae.recipes.recipe import Cell, Settings, merged


def noise_grid(
    settings: Settings,
    *,
    kind: str,
    rates: Sequence[int],
    losses: Sequence[str],
    num_classes: int = 10,
) -> list[Cell]:
    """A cell for each noise rate and method, named ``RATE-METHOD``.

    Args:
        settings: What all cells share.
        kind: Kind of the noise.
        rates: Noise rates in percent; 0 makes IMAE take the T of clean labels.
        losses: Names of methods.
        num_classes: Classes of the data.

    Examples:
        >>> cells = noise_grid({"seed": 1}, kind="symmetric", rates=(0, 40), losses=("gce",))
        >>> [cell.name for cell in cells], cells[1].settings["noise"]
        (['0-gce', '40-gce'], 'symmetric:0.4')
    """
    return [
        Cell(
            name=f"{rate}-{loss}",
            columns={"Noise": f"{rate}%", "Method": title(loss)},
            settings=merged(
                settings,
                {"noise": f"{kind}:{rate / 100}"},
                method(loss, rate=rate / 100, num_classes=num_classes),
            ),
        )
        for rate in rates
        for loss in losses
    ]
