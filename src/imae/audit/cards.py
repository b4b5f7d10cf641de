"""What a review page shows: which rows, in which order, and what is known of each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imae.audit.decisions import Decision, identity
from imae.audit.preview import Preview, Previewer
from imae.audit.result import Audit

_MATRIX_CLASSES = 12  # with more, the confusion is a list
_LISTED_PAIRS = 40
_NO_CLASS = "no class"


@dataclass(frozen=True)
class Sample:
    """The random sample of flagged rows that a page of the check shows.

    Args:
        rows: Positions of the rows.
        confidence: Confidence of the bound.
    """

    rows: NDArray[np.int64]
    confidence: float = 0.95


@dataclass(frozen=True)
class Serving:
    """What a page from a server has that a file has not.

    Args:
        saved: Decisions made before, by position of the row.
    """

    saved: Mapping[int, Decision] = field(default_factory=dict)


def suspects(audit: Audit) -> NDArray[np.int64]:
    """Positions of the rows to review, most suspect first, near-identical rows together.

    They are the flagged rows, those that fit no class, and near-identical rows of which not all
    have the same label.
    """
    is_suspect = audit.is_flagged | audit.fits_no_class | in_conflict(audit)
    members: dict[int, list[int]] = {}
    order = [row for row in audit.order().tolist() if is_suspect[row]]
    for row in order:
        members.setdefault(int(audit.group[row]), []).append(row)
    placed: list[int] = []
    for row in order:
        group = int(audit.group[row])
        placed.extend([row] if group < 0 else members.pop(group, []))
    return np.array(placed, dtype=np.int64)


def in_conflict(audit: Audit) -> NDArray[np.bool_]:
    """Whether each row is in a group of near-identical rows with different labels."""
    found = np.zeros(len(audit), dtype=bool)
    grouped = np.flatnonzero(audit.group >= 0)
    if len(grouped):
        groups, labels = audit.group[grouped], audit.given[grouped]
        pairs = np.unique(np.stack([groups, labels], axis=1), axis=0)
        numbers, counts = np.unique(pairs[:, 0], return_counts=True)
        found[grouped] = np.isin(groups, numbers[counts > 1])
    return found


def _suggestion(audit: Audit, row: int) -> int | None:
    return None if audit.fits_no_class[row] else int(audit.suggested[row])


def _counts(audit: Audit, rows: NDArray[np.int64]) -> Counter[tuple[int, int | None]]:
    return Counter((int(audit.given[row]), _suggestion(audit, row)) for row in rows.tolist())


def _pair(pair: tuple[int, int | None], count: int, names: Sequence[str]) -> dict[str, object]:
    given, suggested = pair
    return {
        "key": f"{given}-{'none' if suggested is None else suggested}",
        "given": names[given],
        "suggested": _NO_CLASS if suggested is None else names[suggested],
        "count": count,
    }


def list_pairs(
    audit: Audit, rows: NDArray[np.int64], names: Sequence[str]
) -> list[dict[str, object]]:
    """Pairs of given and suggested class among the rows, the most frequent first."""
    return [_pair(pair, count, names) for pair, count in _counts(audit, rows).most_common()]


def confusion(audit: Audit, rows: NDArray[np.int64], names: Sequence[str]) -> dict[str, object]:
    """Counts of given against suggested: a matrix for few classes, else the longest list."""
    counts = _counts(audit, rows)
    most = max(counts.values(), default=1)
    pairs = [_pair(pair, count, names) for pair, count in counts.most_common(_LISTED_PAIRS)]
    matrix = None
    if len(names) <= _MATRIX_CLASSES:
        columns: list[int | None] = [*range(len(names)), None]
        matrix = [
            [
                {
                    **_pair((given, suggested), counts[given, suggested], names),
                    "heat": 1 + int(2.99 * counts[given, suggested] / most),
                }
                for suggested in columns
            ]
            for given in range(len(names))
        ]
    return {"matrix": matrix, "pairs": pairs, "num_pairs": len(counts)}


def make_cards(
    audit: Audit,
    rows: NDArray[np.int64],
    names: Sequence[str],
    preview: Previewer,
    most_previews: int,
) -> list[dict[str, Any]]:
    """What the template shows of each row; only the first ``most_previews`` get a preview."""
    sizes = Counter(audit.group[rows].tolist())
    cards = []
    for place, row in enumerate(rows.tolist()):
        suggested = _suggestion(audit, row)
        row_id = str(audit.row_ids[row])
        group = int(audit.group[row])
        shown: Preview | None = preview(row_id) if place < most_previews else None
        others = sizes[group] - 1 if group >= 0 else 0
        cards.append(
            {
                "id": row_id,
                "given": names[audit.given[row]],
                "suggested": _NO_CLASS if suggested is None else names[suggested],
                "sure": "" if suggested is None else _share(audit.suggested_probability[row]),
                "certainty": _share(audit.wrong_probability[row]),
                "is_believed": suggested == audit.given[row],
                "group": group,
                "alike": f"{others} other{'s' * (others > 1)}" if others else "",
                "preview": shown,
            }
        )
    return cards


def _share(probability: float) -> str:
    return f"{100 * probability:.0f}%"


def page_data(
    audit: Audit,
    rows: NDArray[np.int64],
    names: Sequence[str],
    sample: Sample | None,
    serving: Serving | None,
) -> dict[str, object]:
    """What the script of the page knows."""
    mark = identity(audit)
    saved = {} if serving is None else serving.saved
    return {
        "identity": mark,
        "file": f"decisions-{mark[:8]}.csv",
        "served": serving is not None,
        "confidence": None if sample is None else sample.confidence,
        "num_flagged": int(audit.is_flagged.sum()),
        "classes": list(audit.class_names),
        "shown": list(names),
        "rows": [
            {
                "id": str(audit.row_ids[row]),
                "given": int(audit.given[row]),
                "suggested": _suggestion(audit, row),
                "certainty": round(float(audit.wrong_probability[row]), 6),
                "group": int(audit.group[row]),
            }
            for row in rows.tolist()
        ],
        "saved": [
            {
                **asdict(each),
                "row_id": str(audit.row_ids[row]),
                "given": audit.class_names[audit.given[row]],
                "label": "" if each.label is None else audit.class_names[each.label],
            }
            for row, each in saved.items()
        ],
    }
