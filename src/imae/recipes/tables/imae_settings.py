"""IMAE's settings: T, the cap, and what makes it stable; the form to recommend."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from imae.recipes.protocols import (
    CIFAR10,
    CIFAR100,
    FEATURES,
    SHORT_RATES,
    budgeted,
    method,
    short,
    title,
)
from imae.recipes.recipe import Cell, Outcome, Recipe, Settings, merged
from imae.records.files import write_file
from imae.report.formats import UNKNOWN, summary_text
from imae.report.hints import Summary

_SHORT_ROWS = 5000
_RATES = (40, 0)
_ABLATED_T = (16.0, 8.0, 4.0, 2.0, 1.0, 0.5, 0.0)
_FACTORS = (2.0, 4.0, 8.0)
_FORMS = ("imae", "imae_stable", "imae_authors")
# Further cells, whose numbers are only in comments in the source of the paper.
_UNPUBLISHED = (
    ("resnet20", 80, 4.0),
    ("resnet20", 80, 16.0),
    ("resnet56", 0, 4.0),
    ("resnet56", 40, 4.0),
    ("resnet56", 40, 16.0),
    ("resnet56", 80, 4.0),
)
_CHOSEN_ON = {"held_out": "held-out given labels", "intact": "training rows, true labels"}


def t_cells(budget: str) -> tuple[Cell, ...]:
    """Each noise rate and T, of the printed, stable and authors' form; CCE, MAE and MAE scaled.

    The budget ``features`` has no ResNet-56: its cells would be those of ResNet-20 again.
    """
    networks = ("resnet20",) if budget == "features" else ("resnet20", "resnet56")
    return budgeted(
        budget,
        [
            cell
            for rate in _RATES
            for cell in (
                *(_t_cell(rate, loss, None) for loss in ("cce", "mae")),
                *(_scaled_cell(rate, factor) for factor in _FACTORS),
                *(_t_cell(rate, name, T) for name in _FORMS for T in _ABLATED_T),
            )
        ]
        + [
            _t_cell(rate, "imae", T, network)
            for network, rate, T in _UNPUBLISHED
            if network in networks
        ],
        short=short(_SHORT_ROWS),
        rates=SHORT_RATES,
    )


def _t_cell(rate: int, loss: str, T: float | None, network: str = "resnet20") -> Cell:
    settings = merged(
        CIFAR10,
        {
            "model": {"name": network},
            "noise": f"symmetric:{rate / 100}",
        },
        method(loss, rate=rate / 100),
    )
    name = f"{rate}-{loss}"
    columns = {"Noise": f"{rate}%", "Loss": title(loss), "T": ""}
    if T is not None:
        settings = merged(settings, {"method": {"arguments": {"T": T}}})
        name, columns["T"] = f"{name}-{T:g}", f"{T:g}"
    if network != "resnet20":
        name, columns["Noise"] = f"{network}-{name}", f"{columns['Noise']}, {network}"
    return Cell(name, columns, settings)


def _scaled_cell(rate: int, factor: float) -> Cell:
    """MAE times a constant, which changes its variance and no ratio between two rows."""
    plain = _t_cell(rate, "mae", None)
    return Cell(
        f"{plain.name}-times-{factor:g}",
        {**plain.columns, "Loss": f"{title('mae')} times {factor:g}"},
        merged(plain.settings, {"method": {"arguments": {"factor": factor}}}),
    )


def choose_t(folder: Path, outcomes: Sequence[Outcome]) -> list[Path]:
    """Writes which T each way of choosing it selects, and which one the test rows would."""
    lines = [
        "| Noise | Loss | T chosen by accuracy on | T | its final test accuracy "
        "| best final test accuracy of any T | at T |",
        "|---|---|---|---|---|---|---|",
    ]
    for rate in _RATES:
        for loss in _FORMS:
            group = [each for each in outcomes if each.cell.name.startswith(f"{rate}-{loss}-")]
            for measure, words in _CHOSEN_ON.items():
                lines += _choice(f"| {rate}% | {title(loss)} | {words}", group, measure)
    path = folder / "chosen_T.md"
    write_file(path, "\n".join(lines) + "\n")
    return [path]


def _choice(begin: str, group: Sequence[Outcome], measure: str) -> list[str]:
    known = [
        outcome
        for outcome in group
        if outcome.measure(measure) is not None and outcome.measure("final") is not None
    ]
    if len(known) < 2:
        return []
    chosen = max(known, key=lambda each: _mean(each, measure))
    best = max(known, key=lambda each: _mean(each, "final"))
    return [
        f"{begin} | {chosen.cell.columns['T']} | {100 * _mean(chosen, 'final'):.1f} "
        f"| {100 * _mean(best, 'final'):.1f} | {best.cell.columns['T']} |"
    ]


def _mean(outcome: Outcome, measure: str) -> float:
    summary = outcome.measure(measure)
    assert summary is not None
    return summary.mean


T_ABLATION = Recipe(
    name="t_ablation",
    cells=t_cells,
    measures=("best", "final", "train", "intact", "noisy", "clean", "held_out"),
    notes=(
        "The paper shows these as curves without printed numbers. It chooses T by the accuracy on "
        "the training rows with their true labels, which nobody has who needs to choose T; at the "
        "short budget, or with `--set data.hold_out=0.1`, a tenth of the rows is held out and T is "
        "chosen on their given labels too. MAE times a constant is the linear scaling that the "
        "paper tried without success. `unpublished` numbers are comments in the source of the "
        "paper's CIFAR-10 table, which the paper does not print; those of T = 4 at 40% are equal "
        "for both networks, digit by digit, so one of the two is a copy."
    ),
    finish=choose_t,
)


# Heading, and arguments that differ from those of the printed form.
_VARIANTS: dict[str, tuple[str, Settings]] = {
    "printed": ("as printed", {}),
    "normalised": ("mean weight of the batch 1", {"normalize": "batch"}),
    "saturated": ("weight 0 from margin 16 on", {"window_high": 16.0}),
    "bounded": ("logits of norm 5 at most", {"bound": 5.0}),
    "normalised-saturated": (
        "mean weight 1, weight 0 from margin 16 on",
        {"normalize": "batch", "window_high": 16.0},
    ),
    "normalised-bounded": (
        "mean weight 1, logits of norm 5 at most",
        {"normalize": "batch", "bound": 5.0},
    ),
    "saturated-bounded": (
        "weight 0 from margin 16 on, logits of norm 5 at most",
        {"window_high": 16.0, "bound": 5.0},
    ),
    "normalised-saturated-bounded": (
        "all three",
        {"normalize": "batch", "window_high": 16.0, "bound": 5.0},
    ),
    # Other places of the edge and of the bound.
    "normalised-saturated-8": (
        "mean weight 1, weight 0 from margin 8 on",
        {"normalize": "batch", "window_high": 8.0},
    ),
    "normalised-saturated-4": (
        "mean weight 1, weight 0 from margin 4 on",
        {"normalize": "batch", "window_high": 4.0},
    ),
    "normalised-bounded-16": (
        "mean weight 1, logits of norm 16 at most",
        {"normalize": "batch", "bound": 16.0},
    ),
    "normalised-bounded-8": (
        "mean weight 1, logits of norm 8 at most",
        {"normalize": "batch", "bound": 8.0},
    ),
}


def stability_cells(budget: str) -> tuple[Cell, ...]:
    """Each way to make it stable, and the authors' code, which normalises and saturates."""
    return budgeted(
        budget,
        [
            *(_form(name, heading, "imae", extra) for name, (heading, extra) in _VARIANTS.items()),
            _form("authors", "as the authors' code computes it", "imae_authors", {}),
        ],
        short=short(_SHORT_ROWS),
        rates=SHORT_RATES,
    )


def _form(name: str, heading: str, loss: str, arguments: Settings) -> Cell:
    return Cell(
        name=name,
        columns={"IMAE, T = 8": heading},
        settings=merged(
            CIFAR10,
            {"model": {"name": "resnet20"}, "noise": "symmetric:0.4"},
            {"method": {"name": loss, "arguments": {"T": 8.0, **arguments}}},
        ),
    )


STABILITY = Recipe(
    name="stability",
    cells=stability_cells,
    measures=("best", "final", "noisy", "clean", "corrected", "hybrid"),
    notes=(
        "Not in the paper; what it prints for IMAE is in the recipe cifar10. The length of the "
        "schedule is tried with `--budget paper --set train.steps=N --set schedule.at=M,M`."
    ),
)


_BASELINES = ("cce", "mae", "gce", "sl", "label_smoothing", "bootstrap_soft", "bootstrap_hard")
_METHOD = "imae_capped"
_STUDIED_T: tuple[float | str, ...] = (2.0, 4.0, 8.0, 16.0, "auto")
_CAPS = (0.5, 0.75, 0.9)
_DEFAULT = "Tauto-cap0.75-half"  # the default of the method

# Name: heading, data, options of the data, noise, part of the labels that is wrong.
_SETTINGS: Mapping[str, tuple[str, str, Settings, str | None, float]] = {
    "digits-clean": ("digits clean", "digits", {}, "symmetric:0.0", 0.0),
    "digits-s40": ("digits symmetric 40%", "digits", {}, "symmetric:0.4", 0.4),
    "fashion-clean": ("Fashion-MNIST clean", "fashion_mnist", {}, "symmetric:0.0", 0.0),
    "fashion-s40": ("Fashion-MNIST symmetric 40%", "fashion_mnist", {}, "symmetric:0.4", 0.4),
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
    "c100-s60": ("CIFAR-100 symmetric 60%", "cifar100", {}, "symmetric:0.6", 0.6),
    "c100n": ("CIFAR-100N", "cifar100n", {}, None, 0.402),
}
# Digits and Fashion-MNIST are trained on their pixels, by the same head, at every budget.
_PIXELS: Mapping[str, Settings] = {
    "digits": merged(
        FEATURES, {"data": {"features": None, "augment": False}, "train": {"epochs": 40}}
    ),
    "fashion_mnist": merged(FEATURES, {"data": {"features": None, "augment": False}}),
}
# Other learning rates and another optimiser; FEATURES has nesterov at 0.05.
_OPTIMISERS: Mapping[str, tuple[str, Settings]] = {
    "lr0.01": ("SGD 0.01", {"lr": 0.01}),
    "": ("SGD 0.05", {}),
    "lr0.2": ("SGD 0.2", {"lr": 0.2}),
    "adam0.001": ("Adam 0.001", {"name": "adam", "lr": 0.001}),
}
_OPTIMISED = ("digits-s40", "c10-s40", "c10n-worst", "c100-s40")
_OPTIMISED_BASELINES = ("cce", "mae", "gce", "sl")


def forms() -> dict[str, Settings]:
    """Arguments of the method for every form that is tried, by its name.

    A T that follows the training is scaled by the weight at 1/2, as by default. The scale by the
    mean weight of the batch is tried at one cap only.
    """
    tried = [(T, cap, "half" if T == "auto" else "chance") for T in _STUDIED_T for cap in _CAPS]
    tried += [(T, 0.75, "batch") for T in _STUDIED_T]
    return {
        f"T{T if isinstance(T, str) else format(T, 'g')}-cap{cap:g}-{scale}": {
            "T": T,
            "cap": cap,
            "normalize": scale,
        }
        for T, cap, scale in tried
    }


def study_cells(budget: str) -> tuple[Cell, ...]:
    """Each setting with every form and every other method, and some with other optimisers."""
    found = []
    for name in _SETTINGS:
        found += [_cell(name, loss, {}) for loss in _BASELINES]
        found += [_cell(name, _METHOD, arguments, form) for form, arguments in forms().items()]
    if budget == "tiny":
        return budgeted(budget, found, short={})
    laid_over = {"short": short(_SHORT_ROWS), "features": FEATURES}
    made: list[Cell] = []
    for cell in found:
        pixels = _PIXELS.get(cell.settings["data"]["name"])
        over = laid_over.get(budget, {}) if pixels is None else pixels
        made += budgeted(budget, [cell], short=over, features=over)
    return (*made, *_optimiser_cells(made)) if budget == "features" else tuple(made)


def _cell(name: str, loss: str, arguments: Settings, form: str = "") -> Cell:
    heading, data, options, noise, rate = _SETTINGS[name]
    is_large = data.startswith("cifar100")
    return Cell(
        name=_join(name, loss, form),
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
            _PIXELS.get(data, {}),
        ),
    )


def _optimiser_cells(made: Sequence[Cell]) -> list[Cell]:
    by_name = {cell.name: cell for cell in made}
    found = []
    for parts in _optimised():
        plain = by_name[_join(*parts)]
        for label, (heading, settings) in _OPTIMISERS.items():
            form = ", ".join(filter(None, (plain.columns["Form"], heading)))
            cell = Cell(
                name=_join(plain.name, label),
                columns={**plain.columns, "Form": form},
                settings=merged(plain.settings, {"optimizer": settings}),
            )
            found += [cell] if label else []
    return found


def _optimised() -> list[tuple[str, str, str]]:
    """Setting, method and form of the runs that are made with every optimiser."""
    losses = [*((loss, "") for loss in _OPTIMISED_BASELINES), (_METHOD, _DEFAULT)]
    return [(name, loss, form) for name in _OPTIMISED for loss, form in losses]


def _join(*parts: str) -> str:
    return "-".join(filter(None, parts))


def choose(folder: Path, outcomes: Sequence[Outcome]) -> list[Path]:
    """Writes the form that the held-out given labels choose, and what it does on the test rows.

    One form is chosen for all settings: the highest mean accuracy on held-out given labels, among
    the forms of the setting that has most, over the settings that have all of these.
    """
    found = _Found({outcome.cell.name: outcome for outcome in outcomes})
    held_out = {
        name: {
            form: summary.mean
            for form in forms()
            if (summary := found.of(name, _METHOD, form, measure="held_out")) is not None
        }
        for name in _SETTINGS
    }
    tried = max(held_out.values(), key=len)
    common = [name for name, known in held_out.items() if tried and tried.keys() <= known.keys()]
    if not common:
        return []
    means = {form: sum(held_out[name][form] for name in common) / len(common) for form in tried}
    chosen = max(means, key=lambda form: means[form])
    lines = [
        f"Chosen by held-out given labels over {len(common)} settings: **{chosen}**."
        if len(means) > 1
        else f"One form was run, so there was nothing to choose: **{chosen}**.",
        "",
        *(_choice_table(means, common) if len(means) > 1 else ()),
        "",
        "Final test accuracy in percent, mean ± standard deviation (seeds).",
        "",
        *_final_table(found, chosen, held_out),
    ]
    for form in dict.fromkeys((chosen, _DEFAULT)):
        lines += ["", *_verdict(found, form)]
    lines += ["", *_auto_table(found), "", *_optimiser_table(found)]
    path = folder / "study.md"
    write_file(path, "\n".join(lines).rstrip() + "\n")
    return [path]


class _Found:
    """What was measured, by the parts of a cell's name."""

    def __init__(self, by_name: Mapping[str, Outcome]) -> None:
        self._by_name = by_name

    def of(self, *parts: str, measure: str = "final") -> Summary | None:
        outcome = self._by_name.get(_join(*parts))
        return None if outcome is None else outcome.measure(measure)


def _choice_table(means: Mapping[str, float], common: Sequence[str]) -> list[str]:
    ranked = sorted(means, key=lambda form: -means[form])
    settings = ", ".join(_SETTINGS[name][0] for name in common)
    lines = ["| Form | Held-out given labels, mean over the settings |", "|---|---:|"]
    lines += [f"| {form} | {100 * means[form]:.2f} |" for form in ranked]
    return [*lines, "", f"Settings with all {len(means)} forms: {settings}."]


def _final_table(
    found: _Found, chosen: str, held_out: Mapping[str, Mapping[str, float]]
) -> list[str]:
    shown = dict.fromkeys((_DEFAULT, chosen))
    headings = ["Setting", *map(title, _BASELINES)]
    headings += [*(f"{title(_METHOD)}: {form}" for form in shown), "form chosen here"]
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    for name, (heading, *_) in _SETTINGS.items():
        row = [found.of(name, loss) for loss in _BASELINES]
        row += [found.of(name, _METHOD, form) for form in shown]
        known = held_out[name]
        own = max(known, key=lambda form: known[form]) if len(known) > 1 else None
        best = UNKNOWN if own is None else f"{_shown(found.of(name, _METHOD, own))} ({own})"
        if own is not None or any(each is not None for each in row):
            lines.append(f"| {heading} | {' | '.join(map(_shown, row))} | {best} |")
    return lines


def _verdict(found: _Found, form: str) -> list[str]:
    """In how many settings a form is best, and how far it is behind in the others."""
    gaps = {}
    for name, (heading, *_) in _SETTINGS.items():
        others = [each for loss in _BASELINES if (each := found.of(name, loss)) is not None]
        own = found.of(name, _METHOD, form)
        if own is not None and others:
            gaps[heading] = 100 * (own.mean - max(other.mean for other in others))
    if not gaps:
        return []
    worst = min(gaps, key=lambda heading: gaps[heading])
    ahead = sum(gap >= 0 for gap in gaps.values())
    beside = ", ".join(f"{heading} {gap:+.1f}" for heading, gap in gaps.items())
    return [
        f"**{form}**: final test accuracy at or above every other method in {ahead} of {len(gaps)} "
        f"settings; lowest against the best of them: {gaps[worst]:+.1f} points ({worst}). "
        f"Against the best other: {beside}."
    ]


def _auto_table(found: _Found) -> list[str]:
    """T chosen in training beside the best fixed T in hindsight, both at the default cap."""
    lines, gaps = [], []
    for name, (heading, *_) in _SETTINGS.items():
        auto = found.of(name, _METHOD, _DEFAULT)
        fixed = {
            f"{T:g}": summary
            for T in _STUDIED_T
            if not isinstance(T, str)
            and (summary := found.of(name, _METHOD, f"T{T:g}-cap0.75-chance"))
        }
        if auto is not None and len(fixed) > 1:
            best = max(fixed, key=lambda T: fixed[T].mean)
            gaps.append(100 * (auto.mean - fixed[best].mean))
            row = (heading, _shown(auto), _shown(fixed[best]), best, f"{gaps[-1]:+.1f}")
            lines.append(f"| {' | '.join(row)} |")
    if not lines:
        return []
    return [
        'T="auto" beside the fixed T that the test rows would choose, at the same cap: '
        f"mean difference {sum(gaps) / len(gaps):+.2f} points over {len(gaps)} settings.",
        "",
        "| Setting | auto | best fixed T in hindsight | T | Difference |",
        "|---|---:|---:|---:|---:|",
        *lines,
    ]


def _optimiser_table(found: _Found) -> list[str]:
    """Final accuracy under every learning rate and optimiser."""
    lines = []
    for name, loss, form in _optimised():
        row = [found.of(name, loss, form, label) for label in _OPTIMISERS]
        known = [each.mean for each in row if each is not None]
        if len(known) > 1:
            spread = f"{100 * (max(known) - min(known)):.1f}"
            texts = [_SETTINGS[name][0], title(loss), *map(_shown, row), spread]
            lines.append(f"| {' | '.join(texts)} |")
    if not lines:
        return []
    headings = [heading for heading, _ in _OPTIMISERS.values()]
    return [
        "Learning rates and optimisers: final test accuracy, and how far it spreads.",
        "",
        f"| Setting | Method | {' | '.join(headings)} | Spread |",
        f"|---|---|{'---:|' * (len(headings) + 1)}",
        *lines,
    ]


def _shown(summary: Summary | None) -> str:
    text = summary_text(summary)
    return text if summary is None or summary.deviation is None else f"{text} ({summary.count})"


STUDY = Recipe(
    name="study",
    cells=study_cells,
    measures=("best", "final", "noisy", "clean", "held_out"),
    notes=(
        "Not in the paper. One form is chosen for all settings by the held-out given labels; "
        "`study.md` has the choice and the final table. Digits and Fashion-MNIST are trained on "
        "their pixels. Part of it: `--only 'c10-s40-*'`."
    ),
    finish=choose,
)
