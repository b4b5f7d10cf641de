import numpy as np
import pytest

from imae._draws import seeded
from imae.audit import Audit

NAMES = ("cat", "dog", "bird", "=SUM(A1)")


def made_up(num_rows=40, *, class_names=NAMES, prefix="photo", seed=1):
    """An audit of rows of which a quarter is flagged, two fit no class and three are alike."""
    generator = np.random.Generator(np.random.PCG64(seed))
    num_classes = len(class_names)
    given = generator.integers(0, num_classes, num_rows)
    wrong = np.sort(generator.random(num_rows))[::-1].copy()
    is_flagged = np.arange(num_rows) < num_rows // 4
    suggested = np.where(is_flagged, (given + 1) % num_classes, given)
    fits_no_class = np.zeros(num_rows, bool)
    fits_no_class[[2, 5]] = True
    group = np.full(num_rows, -1)
    group[[0, 3, num_rows - 1]] = 0
    return Audit(
        row_ids=np.array([f"{prefix}/{row}.jpg" for row in range(num_rows)]),
        given=given,
        class_names=class_names,
        suspicion=wrong,
        wrong_probability=wrong,
        suggested=suggested,
        suggested_probability=wrong,
        is_flagged=is_flagged,
        fits_no_class=fits_no_class,
        group=group,
        noise_rate=0.25,
        noise_rate_low=0.2,
        noise_rate_high=0.31,
        transition=np.eye(num_classes),
    )


def overlapping(rate, *, num_rows=2000, separation=3.0):
    """Exact probabilities of four classes that overlap, given labels, and which are wrong."""
    draws = seeded(1)
    clean = draws.integers(0, 4, num_rows)
    x = draws.normal(size=(num_rows, 4))
    x[np.arange(num_rows), clean] += separation
    odds = np.exp(separation * x)
    is_wrong = draws.random(num_rows) < rate
    given = np.where(is_wrong, (clean + draws.integers(1, 4, num_rows)) % 4, clean)
    return odds / odds.sum(1, keepdims=True), given, is_wrong


@pytest.fixture(scope="session")
def make_audit():
    return made_up


@pytest.fixture(scope="session")
def make_overlapping():
    return overlapping
