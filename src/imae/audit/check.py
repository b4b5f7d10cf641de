"""A bound on the precision of the flagged rows, from a sample that a person judged."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from imae._draws import numpy_generator
from imae.audit.decisions import Decision
from imae.audit.result import Audit
from imae.errors import ArgumentError, DataError, check_integer, check_interval
from imae.records.files import parse_object, whole_file

_HALVINGS = 200  # far more than a float has bits


@dataclass(frozen=True)
class Checked:
    """What a person found in a random sample of the flagged rows.

    Args:
        num_flagged: Flagged rows that the sample was drawn from.
        num_sampled: Rows in the sample.
        num_judged: Rows of the sample that a person has decided about.
        num_wrong: Rows of the sample whose given label the person found wrong.
        confidence: Confidence of the bound, in (0, 1).
        seed: Seed of the sample.

    Examples:
        >>> Checked(500, 100, 100, 96, 0.95, 0).sentence()
        'A person found 96 of 100 randomly drawn flagged rows wrong: with 95% confidence at least
        91.1% of all 500 flagged labels are wrong.'
    """

    num_flagged: int
    num_sampled: int
    num_judged: int
    num_wrong: int
    confidence: float
    seed: int

    @property
    def precision_at_least(self) -> float:
        """Lower bound on the share of flagged rows whose label is wrong."""
        return lower_bound(self.num_wrong, self.num_sampled, confidence=self.confidence)

    @property
    def is_complete(self) -> bool:
        """Whether the whole sample was judged."""
        return self.num_judged == self.num_sampled

    def sentence(self) -> str:
        """The finding in one sentence."""
        if not self.is_complete:
            return (
                f"A person has judged {self.num_judged} of {self.num_sampled} randomly drawn "
                "flagged rows; the bound needs all of them."
            )
        return (
            f"A person found {self.num_wrong} of {self.num_sampled} randomly drawn flagged rows "
            f"wrong: with {100 * self.confidence:g}% confidence at least "
            f"{100 * self.precision_at_least:.1f}% of all {self.num_flagged} flagged labels are "
            "wrong."
        )


def lower_bound(num_wrong: int, num_rows: int, *, confidence: float = 0.95) -> float:
    """The exact one-sided lower bound of Clopper and Pearson on a probability.

    It is the p at which ``num_wrong`` or more of ``num_rows`` have probability 1 - confidence;
    for a sample drawn without replacement it is on the safe side.

    Args:
        num_wrong: Rows that have the property.
        num_rows: Rows looked at, at least 1.
        confidence: In (0, 1).

    Raises:
        ArgumentError: If a number is out of range.

    Examples:
        >>> round(lower_bound(20, 20), 6), lower_bound(0, 20)
        (0.860892, 0.0)

    Reference:
        Clopper and Pearson, "The Use of Confidence or Fiducial Limits Illustrated in the Case of
        the Binomial", Biometrika 1934.
    """
    check_integer("num_rows", num_rows, low=1)
    check_integer("num_wrong", num_wrong, low=0)
    check_interval("confidence", confidence, low=0.0, high=1.0, open_low=True, open_high=True)
    if num_wrong > num_rows:
        raise ArgumentError(f"num_wrong must be at most num_rows, got {num_wrong} of {num_rows}")
    if num_wrong == 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _chance_of_more(num_wrong, num_rows, middle) < 1 - confidence:
            low = middle
        else:
            high = middle
    return low


def _chance_of_more(successes: int, trials: int, p: float) -> float:
    """Probability of at least so many successes, P(X >= k) for X ~ Binomial(n, p), k >= 1."""
    if p in (0.0, 1.0):
        return p
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, trials + 1)))])
    counts = np.arange(successes, trials + 1)
    logs = (
        log_factorials[trials]
        - log_factorials[counts]
        - log_factorials[trials - counts]
        + counts * np.log(p)
        + (trials - counts) * np.log1p(-p)
    )
    return float(np.exp(logs).sum())


def draw_sample(audit: Audit, num_rows: int, *, seed: int = 0) -> NDArray[np.int64]:
    """Positions of flagged rows, drawn at random without replacement, in random order.

    Args:
        audit: The audit.
        num_rows: Size of the sample; all flagged rows if there are no more.
        seed: Seed of the draw.

    Raises:
        ArgumentError: If ``num_rows`` is below 1.
        DataError: If no row is flagged.
    """
    check_integer("rows", num_rows, low=1)
    flagged = np.flatnonzero(audit.is_flagged)
    if len(flagged) == 0:
        raise DataError("no row is flagged, so there is nothing to check")
    return numpy_generator(seed, "audit check").permutation(flagged)[:num_rows]


def check(
    audit: Audit,
    decisions: Mapping[int, Decision],
    *,
    num_rows: int = 100,
    confidence: float = 0.95,
    seed: int = 0,
) -> Checked:
    """What the decisions say about the seeded sample of the flagged rows.

    A decision that gives another label or no class says that the given label is wrong; keep says
    that it is right. A row that a person skipped or set apart counts as judged and not wrong,
    so that the bound holds whatever it is.

    Args:
        audit: The audit.
        decisions: By position of the row, from ``read_decisions``.
        num_rows: Size of the sample.
        confidence: Confidence of the bound.
        seed: Seed of the sample.
    """
    check_interval("confidence", confidence, low=0.0, high=1.0, open_low=True, open_high=True)
    sample = draw_sample(audit, num_rows, seed=seed)
    judged = [decisions[row] for row in sample.tolist() if row in decisions]
    return Checked(
        num_flagged=int(audit.is_flagged.sum()),
        num_sampled=len(sample),
        num_judged=len(judged),
        num_wrong=sum(each.finds_wrong for each in judged),
        confidence=confidence,
        seed=seed,
    )


def save_check(checked: Checked, path: str | os.PathLike[str]) -> None:
    """Writes what was found as JSON."""
    content = {**asdict(checked), "precision_at_least": checked.precision_at_least}
    with whole_file(path) as file:
        file.write(json.dumps(content, indent=2).encode() + b"\n")


def read_check(audit: Audit, path: str | os.PathLike[str]) -> Checked | None:
    """What was found, if it was written down for the rows that are flagged now.

    Raises:
        DataError: If the file is damaged.
    """
    try:
        with open(path, "rb") as file:
            content = parse_object(file.read(), str(path))
    except FileNotFoundError:
        return None
    content.pop("precision_at_least", None)
    try:
        checked = Checked(**content)
        checked.sentence()
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: is damaged ({error}); check again") from None
    return checked if checked.num_flagged == int(audit.is_flagged.sum()) else None
