"""Tables and figures of a recipe: measured numbers beside the paper's."""

import csv
import io
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from imae.errors import import_extra
from imae.recipes.protocols import BUDGETS
from imae.recipes.recipe import Cell, Outcome, Recipe, Settings, published_table
from imae.records.measures import COLUMNS, MEASURES, Measure, find_column
from imae.report.chart import accuracy_series
from imae.report.figures import save_lines
from imae.report.formats import UNKNOWN, duration, summary_text
from imae.report.read import flatten, is_machine_setting

_COLUMN_NAMES = {column.name for column in COLUMNS}
_MOST_NAMES = 12  # of cells that were not run


def as_markdown(
    recipe: Recipe, budget: str, outcomes: Sequence[Outcome], *, changed: Settings
) -> str:
    """The table of a recipe: what was measured, what the paper prints, and the difference.

    Args:
        recipe: The recipe.
        budget: Name of its budget.
        outcomes: What was measured for every cell.
        changed: Settings that override those of the budget, which the table must state.
    """
    ran = [each for each in outcomes if each.runs or each.unfinished or each.failed]
    lines = [f"# {recipe.name}", "", f"{recipe.title[0].upper()}{recipe.title[1:]}.", ""]
    caption = published_table(recipe.name)
    if caption is not None:
        lines += [f'In the paper: "{caption}".', ""]
    lines += [_budget_line(budget, changed), ""]
    if ran:
        headings, rows = _sheet(recipe, ran)
        lines.append(f"| {' | '.join(headings)} |")
        lines.append(f"|{'---|' * len(headings)}")
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines.append("")
        lines += _machines(ran)
    missing = [outcome.cell.name for outcome in outcomes if outcome not in ran]
    if missing:
        # Without their number, which grows with every method of the program.
        others = f"the other cells of `imae reproduce {recipe.name} --list`"
        names = ", ".join(missing) if len(missing) <= _MOST_NAMES else others
        lines += [f"Not run: {names}.", ""]
    for note in (recipe.budget_notes.get(budget), recipe.notes):
        lines += [note, ""] if note else []
    return "\n".join(lines)


def as_text(recipe: Recipe, budget: str, outcomes: Sequence[Outcome], *, changed: Settings) -> str:
    """The measured numbers for a terminal, the paper's in brackets; see ``as_markdown``."""
    rich_table = import_extra("rich.table", extra="report").Table
    console = import_extra("rich.console", extra="report").Console
    table = rich_table(box=None, pad_edge=False)
    measures = [find_column(name).heading for name in recipe.measures]
    for heading in ("cell", "chosen", "seeds", *measures, "time"):
        table.add_column(heading, no_wrap=True)
    for outcome in outcomes:
        if outcome.runs:
            assert outcome.variant is not None
            numbers = []
            for name in recipe.measures:
                paper = outcome.paper.get(name)
                beside = "" if paper is None else f" ({paper:.1f})"
                numbers.append(f"{summary_text(outcome.measure(name))}{beside}")
            time = duration(None if outcome.seconds is None else outcome.seconds.mean)
            seeds = str(len(outcome.runs))
            table.add_row(outcome.cell.name, _choice(outcome), seeds, *numbers, time)
    out = io.StringIO()
    line = _budget_line(budget, changed)
    is_beside = any(outcome.paper for outcome in outcomes if outcome.runs)
    out.write(f"{line} The paper's in brackets.\n" if is_beside else f"{line}\n")
    # Unlimited width, or rich would cut what does not fit; a terminal wraps it.
    console(file=out, width=100_000, color_system=None).print(table)
    return out.getvalue()


def as_csv(recipe: Recipe, outcomes: Sequence[Outcome]) -> str:
    """One row of plain numbers for each cell that ran: accuracies in percent, time in seconds.

    A measure ``M`` has the columns ``M``, ``M_deviation`` over the seeds, ``M_paper`` and
    ``M_difference``; ``held_out:V`` is the held-out accuracy by which variant V was compared.
    """
    rows = [_numbers(recipe, outcome) for outcome in outcomes if outcome.runs]
    headings = list(dict.fromkeys(name for row in rows for name in row)) or ["cell"]
    out = io.StringIO()
    writer = csv.DictWriter(out, headings, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _numbers(recipe: Recipe, outcome: Outcome) -> dict[str, str]:
    assert outcome.variant is not None
    row = {"cell": outcome.cell.name, **outcome.cell.columns}
    row |= {"chosen": outcome.variant.label, "is_settled": str(outcome.is_settled).lower()}
    row["seeds"] = str(len(outcome.runs))
    for name in recipe.measures:
        measured, paper = outcome.measure(name), outcome.paper.get(name)
        mean = None if measured is None else 100 * measured.mean
        deviation = None if measured is None else measured.deviation
        row[name] = _number(mean)
        row[f"{name}_deviation"] = _number(None if deviation is None else 100 * deviation)
        row[f"{name}_paper"] = _number(paper)
        difference = None if mean is None or paper is None else mean - paper
        row[f"{name}_difference"] = _number(difference)
    row |= {
        name: _number(paper) for name, paper in outcome.paper.items() if name not in _COLUMN_NAMES
    }
    for label, found in outcome.tried.items():
        row[f"held_out:{label or 'only'}"] = _number(None if found is None else 100 * found.mean)
    row["seconds"] = _number(None if outcome.seconds is None else outcome.seconds.mean)
    return row


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _sheet(recipe: Recipe, outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    in_paper = dict.fromkeys(name for outcome in outcomes for name in outcome.paper)
    cited = [name for name in in_paper if name not in _COLUMN_NAMES]
    has_variants = any(len(outcome.cell.variants) > 1 for outcome in outcomes)
    headings = [*outcomes[0].cell.columns]
    headings += ["Chosen"] * has_variants + ["Seeds"]
    for name in recipe.measures:
        headings.append(find_column(name).heading)
        if name in in_paper:
            headings += ["Paper", "Difference"]
    headings += [*cited, "Time"]
    return headings, [_row(recipe, each, in_paper, cited, has_variants) for each in outcomes]


def _row(
    recipe: Recipe,
    outcome: Outcome,
    in_paper: Collection[str],
    cited: Sequence[str],
    has_variants: bool,
) -> list[str]:
    row = [*outcome.cell.columns.values()]
    if has_variants:
        row.append(_choice(outcome))
    row.append(_seeds(outcome))
    for name in recipe.measures:
        measured = outcome.measure(name)
        row.append(summary_text(measured))
        if name in in_paper:
            paper = outcome.paper.get(name)
            row.append(UNKNOWN if paper is None else f"{paper:.1f}")
            row.append(
                UNKNOWN
                if measured is None or paper is None
                else f"{100 * measured.mean - paper:+.1f}"
            )
    row += [f"{outcome.paper[name]:.1f}" if name in outcome.paper else UNKNOWN for name in cited]
    row.append(duration(None if outcome.seconds is None else outcome.seconds.mean))
    return row


def _choice(outcome: Outcome) -> str:
    if outcome.variant is None:
        return UNKNOWN
    return outcome.variant.label + ("" if outcome.is_settled else ", so far")


def _seeds(outcome: Outcome) -> str:
    others = {"unfinished": outcome.unfinished, "failed": outcome.failed}
    words = ", ".join(f"{number} {word}" for word, number in others.items() if number)
    return f"{len(outcome.runs)} ({words})" if words else f"{len(outcome.runs)}"


def _budget_line(budget: str, changed: Settings) -> str:
    return f"Budget `{budget}`: {BUDGETS[budget]}{_changes(changed)}. Accuracies in percent."


def _changes(changed: Settings) -> str:
    """Settings that were changed, except for the machine and the location of the data."""
    changes = [
        f"`{name}={value}`"
        for name, value in flatten(changed).items()
        if not is_machine_setting(name)
    ]
    return f"; but {', '.join(changes)}" if changes else ""


def _machines(outcomes: Sequence[Outcome]) -> list[str]:
    """The machines of the runs, each once."""
    machines = {
        f"{env.get('cpu', UNKNOWN)}, {env.get('device', UNKNOWN)}, {env.get('threads', UNKNOWN)} "
        f"threads a run, torch {env.get('torch', UNKNOWN)}"
        for outcome in outcomes
        for env in (run.environment for run in outcome.runs)
    }
    seeds = sorted({int(run.seed) for outcome in outcomes for run in outcome.runs})
    if not machines:
        return []
    return [
        f"Machine: {'; '.join(sorted(machines))}. Seeds: {', '.join(map(str, seeds))}. Time is "
        "that of one run, evaluations and all.",
        "",
    ]


_NAMES_A_LINE = ("Loss", "Method")


def save_figures(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Writes a figure of every measure for the cells that differ only in their method.

    Args:
        outcomes: What was measured for the cells, read from the records of their runs.
        folder: Where the files go; created if it does not exist.

    Returns:
        The files written; there is none for a measure that no run has.
    """
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.runs:
            groups.setdefault(place_and_line(outcome.cell)[0], []).append(outcome)
    return [
        path
        for place, alike in groups.items()
        for measure in MEASURES
        for path in _save(folder, place, measure, alike)
    ]


def place_and_line(cell: Cell) -> tuple[str, str]:
    """The figure a cell belongs to, and the name of its line there, from its columns.

    Examples:
        >>> place_and_line(Cell("a", {"Noise": "40%", "Loss": "IMAE", "T": "8"}, {}))
        ('40%', 'IMAE, 8')
    """
    headings = list(cell.columns)
    first = next((i for i, heading in enumerate(headings) if heading in _NAMES_A_LINE), 0)
    texts = list(cell.columns.values())
    return ", ".join(texts[:first]), ", ".join(filter(None, texts[first:]))


def _save(folder: Path, place: str, measure: Measure, outcomes: Sequence[Outcome]) -> list[Path]:
    if measure.title is None:
        return []
    lines = [
        accuracy_series(place_and_line(outcome.cell)[1], outcome.runs, measure.key)
        for outcome in outcomes
    ]
    lines = [line for line in lines if line.known]
    if not lines:
        return []
    x = sorted({step for line in lines for step, _ in line.known})
    title = measure.title + measure.direction
    return save_lines(
        folder,
        "-".join(filter(None, (_file_name(place), measure.name))),
        np.array(x, dtype=np.float64),
        {
            line.label: np.array([dict(line.known).get(step, np.nan) for step in x])
            for line in lines
        },
        title=f"{place}: {title}" if place else title,
        x_label="training steps",
        y_label="accuracy in percent",
    )


def _file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
