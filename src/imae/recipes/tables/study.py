"""Which form of capped IMAE to recommend: T, cap and scale chosen on held-out given labels."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from imae.recipes.protocols import CIFAR10, CIFAR100, budgeted, method, short, title
from imae.recipes.recipe import Cell, Outcome, Recipe, Settings, merged
from imae.records.files import whole_file
from imae.report.formats import UNKNOWN
from imae.report.hints import Summary

_BASELINES = ("cce", "mae", "gce", "sl", "label_smoothing", "bootstrap_soft", "bootstrap_hard")
_METHOD = "imae_capped"
_T: tuple[float | str, ...] = (2.0, 4.0, 8.0, 16.0, "auto")
_CAPS = (0.5, 0.75, 0.9)
_SHORT_ROWS = 5000

# Name: heading, data, options of the data, noise, part of the labels that is wrong.
_SETTINGS: Mapping[str, tuple[str, str, Settings, str | None, float]] = {
    "c10-clean": ("CIFAR-10 clean", "cifar10", {}, "symmetric:0.0", 0.0),
    "c10-s20": ("CIFAR-10 symmetric 20%", "cifar10", {}, "symmetric:0.2", 0.2),
    "c10-s40": ("CIFAR-10 symmetric 40%", "cifar10", {}, "symmetric:0.4", 0.4),
    "c10-s60": ("CIFAR-10 symmetric 60%", "cifar10", {}, "symmetric:0.6", 0.6),
    "c10-s80": ("CIFAR-10 symmetric 80%", "cifar10", {}, "symmetric:0.8", 0.8),
    "c10-a40": ("CIFAR-10 asymmetric 40%", "cifar10", {}, "cifar10_asymmetric:0.4", 0.4),
    "c10n-aggregate": ("CIFAR-10N aggregate", "cifar10n", {"variant": "aggregate"}, None, 0.09),
    "c10n-worst": ("CIFAR-10N worst", "cifar10n", {"variant": "worst"}, None, 0.402),
    "c100-clean": ("CIFAR-100 clean", "cifar100", {}, "symmetric:0.0", 0.0),
    "c100-s40": ("CIFAR-100 symmetric 40%", "cifar100", {}, "symmetric:0.4", 0.4),
    "c100n": ("CIFAR-100N", "cifar100n", {}, None, 0.402),
}


def forms() -> dict[str, Settings]:
    """Arguments of the method for every form that is tried, by its name.

    The scale by the mean weight of the batch is tried at one cap only.
    """
    tried = [(T, cap, "chance") for T in _T for cap in _CAPS]
    tried += [(T, 0.75, "batch") for T in _T]
    return {
        f"T{T if isinstance(T, str) else format(T, 'g')}-cap{cap:g}-{scale}": {
            "T": T,
            "cap": cap,
            "normalize": scale,
        }
        for T, cap, scale in tried
    }


def cells(budget: str) -> tuple[Cell, ...]:
    """Each setting with every form and every other method."""
    found = []
    for name in _SETTINGS:
        found += [_cell(name, loss, {}) for loss in _BASELINES]
        found += [_cell(name, _METHOD, arguments, form) for form, arguments in forms().items()]
    return budgeted(budget, found, short=short(_SHORT_ROWS))


def _cell(name: str, loss: str, arguments: Settings, form: str = "") -> Cell:
    heading, data, options, noise, rate = _SETTINGS[name]
    is_large = data.startswith("cifar100")
    return Cell(
        name="-".join(filter(None, (name, loss, form))),
        columns={"Setting": heading, "Method": title(loss), "Form": form.replace("-", ", ")},
        settings=merged(
            CIFAR100 if is_large else CIFAR10,
            {
                "data": {"name": data, "options": dict(options)},
                "noise": noise,
                "model": {"name": "resnet44" if is_large else "resnet20"},
            },
            method(loss, rate=rate, num_classes=100 if is_large else 10),
            {"method": {"arguments": dict(arguments)}},
        ),
    )


def choose(folder: Path, outcomes: Sequence[Outcome]) -> list[Path]:
    """Writes the form that the held-out given labels choose, and what it does on the test rows.

    One form is chosen for all settings: the highest mean accuracy on held-out given labels over
    the settings in which all forms were trained. No test row takes part in the choice.
    """
    by_name = {outcome.cell.name: outcome for outcome in outcomes}
    held_out = {
        form: {
            name: summary.mean
            for name in _SETTINGS
            if (summary := _find(by_name, name, _METHOD, form, "held_out")) is not None
        }
        for form in forms()
    }
    tried = {form: found for form, found in held_out.items() if found}
    common = [
        name for name in _SETTINGS if tried and all(name in found for found in tried.values())
    ]
    if not common:
        return []
    means = {
        form: sum(found[name] for name in common) / len(common) for form, found in tried.items()
    }
    chosen = max(means, key=lambda form: means[form])
    lines = [
        f"Chosen by held-out given labels over {len(common)} settings: **{chosen}**.",
        "",
        *_choice_table(means),
        "",
        *_final_table(by_name, chosen, held_out),
        "",
        *_verdict(by_name, chosen),
    ]
    path = folder / "study.md"
    with whole_file(path) as file:
        file.write(("\n".join(lines) + "\n").encode())
    return [path]


def _choice_table(means: Mapping[str, float]) -> list[str]:
    ranked = sorted(means, key=lambda form: -means[form])
    lines = ["| Form | Held-out given labels, mean over the settings |", "|---|---:|"]
    return lines + [f"| {form} | {100 * means[form]:.2f} |" for form in ranked]


def _final_table(
    by_name: Mapping[str, Outcome], chosen: str, held_out: Mapping[str, Mapping[str, float]]
) -> list[str]:
    headings = [
        "Setting",
        *map(title, _BASELINES),
        f"{title(_METHOD)}: {chosen}",
        "form chosen here",
    ]
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    for name, (heading, *_) in _SETTINGS.items():
        row = [_find(by_name, name, loss) for loss in _BASELINES]
        row.append(_find(by_name, name, _METHOD, chosen))
        known = {form: found[name] for form, found in held_out.items() if name in found}
        if known:
            own = max(known, key=lambda form: known[form])
            lines.append(
                f"| {heading} | {' | '.join(map(_shown, row))} "
                f"| {_shown(_find(by_name, name, _METHOD, own))} ({own}) |"
            )
    return lines


def _verdict(by_name: Mapping[str, Outcome], chosen: str) -> list[str]:
    """In how many settings the chosen form is best, and by how much it falls short elsewhere."""
    gaps = {}
    for name, (heading, *_) in _SETTINGS.items():
        others = [each for loss in _BASELINES if (each := _find(by_name, name, loss)) is not None]
        own = _find(by_name, name, _METHOD, chosen)
        if own is not None and others:
            gaps[heading] = 100 * (own.mean - max(other.mean for other in others))
    if not gaps:
        return []
    worst = min(gaps, key=lambda heading: gaps[heading])
    ahead = sum(gap >= 0 for gap in gaps.values())
    return [
        f"Final test accuracy at or above every other method in {ahead} of {len(gaps)} settings; "
        f"lowest against the best of them: {gaps[worst]:+.1f} points ({worst})."
    ]


def _find(
    by_name: Mapping[str, Outcome], name: str, loss: str, form: str = "", measure: str = "final"
) -> Summary | None:
    outcome = by_name.get("-".join(filter(None, (name, loss, form))))
    return None if outcome is None else outcome.measure(measure)


def _shown(summary: Summary | None) -> str:
    if summary is None:
        return UNKNOWN
    spread = "" if summary.deviation is None else f" ± {100 * summary.deviation:.1f}"
    return f"{100 * summary.mean:.1f}{spread}"


STUDY = Recipe(
    name="study",
    cells=cells,
    measures=("best", "final", "noisy", "clean", "held_out"),
    notes=(
        "Not in the paper. One form is chosen for all settings by the held-out given labels; "
        "`study.md` has the choice and the final table. Part of it: `--only 'c10-s40-*'`."
    ),
    finish=choose,
)
