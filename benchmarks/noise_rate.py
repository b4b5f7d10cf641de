"""How often the 95% interval of `imae.noise.estimate_noise_rate` contains the rate.

    python benchmarks/noise_rate.py > results/noise_rate/coverage.md

Classes are Gaussians of unit variance whose means are ``separation`` apart, so that the exact
probabilities of the true class are known. A cell is the part of the runs whose interval contains
the rate, with the mean error of the rate and the mean width of the interval.
"""

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from imae.noise import estimate_noise_rate, pairs, symmetric

_RATES = (0.02, 0.1, 0.2, 0.4)
Floats = NDArray[np.float64]


def posterior(
    rows: int, num_classes: int, separation: float, generator: np.random.Generator
) -> tuple[Floats, NDArray[np.int64]]:
    true = generator.integers(0, num_classes, rows)
    if np.isinf(separation):
        return np.eye(num_classes)[true], true
    side = separation / np.sqrt(2)
    x = generator.standard_normal((rows, num_classes))
    x[np.arange(rows), true] += side
    return power(np.exp(side * (x - x.max(axis=1, keepdims=True))), 1.0), true


def power(weights: Floats, exponent: float) -> Floats:
    raised = weights**exponent
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def cell(
    rows: int,
    num_classes: int,
    separation: float,
    rate: float,
    *,
    kind: str,
    runs: int,
    calibrate: bool,
    change: Callable[[Floats], Floats],
) -> str:
    held, errors, widths = 0, [], []
    for run in range(runs):
        place = [run, rows, num_classes, int(min(separation, 99)), int(1000 * rate)]
        probabilities, true = posterior(
            rows, num_classes, separation, np.random.Generator(np.random.PCG64(place))
        )
        if kind == "pairs":
            mapping = {label: (label + 1) % num_classes for label in range(num_classes)}
            noisy = pairs(true, rate=rate, mapping=mapping, num_classes=num_classes, seed=run)
        else:
            noisy = symmetric(true, rate=rate, num_classes=num_classes, seed=run)
        estimate = estimate_noise_rate(change(probabilities), noisy.labels, calibrate=calibrate)
        held += estimate.low <= rate <= estimate.high
        errors.append(estimate.rate - rate)
        widths.append(estimate.high - estimate.low)
    return f"{held / runs:.0%} ({np.mean(errors):+.3f}, {np.mean(widths):.2f})"


def table(
    title: str,
    sizes: tuple[int, ...],
    classes: tuple[int, ...],
    separations: tuple[float, ...],
    *,
    runs: int,
    kind: str = "symmetric",
    calibrate: bool = False,
    change: Callable[[Floats], Floats] = lambda p: p,
) -> None:
    print(f"\n## {title}: {runs} runs\n")
    print("| classes | rows | separation |" + "".join(f" rate {rate} |" for rate in _RATES))
    print("|---" * (3 + len(_RATES)) + "|")
    for num_classes in classes:
        for rows in sizes:
            for separation in separations:
                cells = [
                    cell(
                        rows,
                        num_classes,
                        separation,
                        rate,
                        kind=kind,
                        runs=runs,
                        calibrate=calibrate,
                        change=change,
                    )
                    for rate in _RATES
                ]
                print(f"| {num_classes} | {rows} | {separation:g} |", " | ".join(cells), "|")
                sys.stdout.flush()


def main() -> None:
    print("# Coverage of the interval of `estimate_noise_rate`, level 95%\n")
    print("`python benchmarks/noise_rate.py`: part of the runs whose interval contains the rate")
    print("(mean error of the rate, mean width of the interval).")
    apart = (1.0, 2.0, 3.0, 4.0)
    table("Exact probabilities, symmetric noise", (200, 1000), (2, 10), apart, runs=100)
    table("A perfect model, symmetric noise", (200, 1000), (2, 10), (np.inf,), runs=200)
    table("Exact probabilities, pair flips", (200, 1000), (5,), apart[:3], runs=60, kind="pairs")
    fitted = "temperature fitted"
    table(f"Exact probabilities, {fitted}", (1000,), (2, 10), (2.0, 3.0), runs=15, calibrate=True)
    sharp = f"Probabilities too sure (squared), {fitted}"
    table(sharp, (1000,), (2, 10), (3.0,), runs=15, calibrate=True, change=lambda p: power(p, 2))


if __name__ == "__main__":
    main()
