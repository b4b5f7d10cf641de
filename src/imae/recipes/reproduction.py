"""Measured numbers beside the paper's, as Markdown and as CSV."""

import csv
import io
from collections.abc import Collection, Sequence

from imae._extras import import_extra
from imae.recipes.budgets import BUDGETS
from imae.recipes.outcome import MEASURES, Outcome
from imae.recipes.published import published_table
from imae.recipes.recipe import Recipe, Settings
from imae.report.formats import UNKNOWN, duration, percent
from imae.report.settings import flatten
from imae.report.table import Summary


def as_markdown(
    recipe: Recipe, budget: str, outcomes: Sequence[Outcome], *, changed: Settings
) -> str:
    """The table of a recipe: what was measured, what the paper prints, and the difference.

    Args:
        recipe: The recipe.
        budget: Name of its budget.
        outcomes: What was measured for every cell.
        changed: Settings laid over those of the budget, which the table must tell.
    """
    ran = [outcome for outcome in outcomes if outcome.runs or outcome.unfinished]
    lines = [f"# {recipe.name}", "", f"{recipe.title[0].upper()}{recipe.title[1:]}.", ""]
    caption = published_table(recipe.name)
    if caption is not None:
        lines += [f'In the paper: "{caption}".', ""]
    lines += [f"Budget `{budget}`: {BUDGETS[budget]}{_but(changed)}. Accuracies in percent.", ""]
    if ran:
        headings, rows = _sheet(recipe, ran)
        lines.append(f"| {' | '.join(headings)} |")
        lines.append(f"|{'---|' * len(headings)}")
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines.append("")
        lines += _machines(ran)
    missing = [outcome.cell.name for outcome in outcomes if outcome not in ran]
    if missing:
        lines += [f"Not run: {', '.join(missing)}.", ""]
    if recipe.notes:
        lines += [recipe.notes, ""]
    return "\n".join(lines)


def as_text(recipe: Recipe, outcomes: Sequence[Outcome]) -> str:
    """The measured numbers for a terminal, the paper's in brackets."""
    rich_table = import_extra("rich.table", extra="report").Table
    console = import_extra("rich.console", extra="report").Console
    table = rich_table(box=None, pad_edge=False)
    for heading in ("cell", "chosen", "seeds", *(MEASURES[name][0] for name in recipe.measures)):
        table.add_column(heading, no_wrap=True)
    for outcome in outcomes:
        if outcome.runs:
            assert outcome.variant is not None
            numbers = []
            for name in recipe.measures:
                paper = outcome.paper.get(name)
                beside = "" if paper is None else f" ({paper:.1f})"
                numbers.append(f"{_shown(outcome.measure(name))}{beside}")
            seeds = str(len(outcome.runs))
            table.add_row(outcome.cell.name, outcome.variant.label, seeds, *numbers)
    out = io.StringIO()
    # Endless, or rich would cut what does not fit; a terminal wraps it.
    console(file=out, width=100_000, color_system=None).print(table)
    return out.getvalue()


def as_csv(recipe: Recipe, outcomes: Sequence[Outcome]) -> str:
    """The table with one row for each cell that ran, and the held-out accuracy of each variant."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    ran = [outcome for outcome in outcomes if outcome.runs]
    headings, rows = _sheet(recipe, ran) if ran else ([], [])
    writer.writerow(["cell", *headings, "held-out given labels, by variant"])
    for outcome, row in zip(ran, rows, strict=True):
        tried = (
            f"{label or 'only'}: {percent(None if found is None else found.mean)}"
            for label, found in outcome.tried.items()
        )
        writer.writerow([outcome.cell.name, *row, "; ".join(tried)])
    return out.getvalue()


def _sheet(recipe: Recipe, outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    in_paper = dict.fromkeys(name for outcome in outcomes for name in outcome.paper)
    cited = [name for name in in_paper if name not in MEASURES]
    has_variants = any(len(outcome.cell.variants) > 1 for outcome in outcomes)
    headings = [*outcomes[0].cell.columns]
    headings += ["Chosen"] * has_variants + ["Seeds"]
    for name in recipe.measures:
        headings.append(MEASURES[name][0])
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
        row.append(UNKNOWN if outcome.variant is None else outcome.variant.label)
    seeds = str(len(outcome.runs))
    row.append(f"{seeds} ({outcome.unfinished} unfinished)" if outcome.unfinished else seeds)
    for name in recipe.measures:
        measured = outcome.measure(name)
        row.append(_shown(measured))
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


def _but(changed: Settings) -> str:
    """What was set otherwise, apart from the machine and where the data lie."""
    told = [
        f"`{name}={value}`"
        for name, value in flatten(changed).items()
        if not name.startswith("machine.") and name != "data.root"
    ]
    return f"; but {', '.join(told)}" if told else ""


def _shown(summary: Summary | None) -> str:
    if summary is None or summary.deviation is None:
        return percent(None if summary is None else summary.mean)
    return f"{percent(summary.mean)} ± {percent(summary.deviation)}"


def _machines(outcomes: Sequence[Outcome]) -> list[str]:
    """What the runs ran on, each machine once."""
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
