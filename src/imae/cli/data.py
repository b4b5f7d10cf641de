"""`imae data`, `noise`, `list` and `curves`: everything with a name, and noise of a known kind."""

import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from imae._draws import DEFAULT_SEED
from imae._registry import Catalog, Entry
from imae.cli.app import (
    DROP,
    ID_COLUMN,
    LABEL_COLUMN,
    OVERWRITE,
    ROOT,
    column_options,
    column_words,
    print_table,
    refuse_overwriting,
    say_next,
)
from imae.errors import check_choice, import_extra

if TYPE_CHECKING:
    from imae.curves import Curve

_ROOT = typer.Option(
    None, "--root", show_default="$IMAE_DATA, ~/.cache/imae", help="Folder of the data sets."
)
WIDE = 120  # columns of a terminal that has room for references
_LONGEST_NUMBER = 8  # characters of a default, such as 100000.0
_NAME = typer.Argument(..., help="Name of the set, as `imae data list` prints it.")

data = typer.Typer(
    help="List, fetch and verify named data sets.", no_args_is_help=True, add_completion=False
)


@data.command("list")
def list_sets(root: Path | None = _ROOT) -> None:
    """Print every named set, its size, where it comes from and whether it is on this machine."""
    print_table(set_table(root, width=Console().width))
    say_next("imae", "data", "fetch", "NAME", *_in_root(root))


def _in_root(root: Path | None) -> tuple[object, ...]:
    """The words of a command that say where the data sets are."""
    return () if root is None else ("--root", root)


def set_table(root: Path | None, *, width: int) -> Table:
    """Every named set, its size, where it comes from and whether it is in the folder."""
    from imae.data.sources.catalog import SETS
    from imae.data.sources.download import data_root

    folder = data_root(root)
    table = Table(title=f"data sets in {escape(str(folder))}")
    table.add_column("name", no_wrap=True)
    table.add_column("what it is")
    table.add_column("rows", justify="right", no_wrap=True)  # a cell is broken by hand, if at all
    table.add_column("classes", justify="right")
    table.add_column("here")
    table.add_column("sources")
    is_wide = width >= WIDE
    if is_wide:
        table.add_column("reference")
    for item in SETS:
        row = (
            item.name,
            escape(item.summary),
            _row_counts(item.rows),
            str(item.num_classes),
            "yes" if item.locate(folder) is not None else "no",
            ", ".join(dict.fromkeys(origin.label for origin in item.origins)) or "by hand",
        )
        table.add_row(*row, *([escape(item.reference)] if is_wide else []))
    return table


def _row_counts(counts: Sequence[int]) -> str:
    """Training rows and the others; three numbers take two lines, or names would have no room."""
    parts = [f"{count:,}" for count in counts]
    return " + ".join(parts) if len(parts) < 3 else f"{parts[0]}\n+ {' + '.join(parts[1:])}"


@data.command("fetch")
def fetch_set(name: str = _NAME, root: Path | None = _ROOT) -> None:
    """Fetch a set, unless it is here, and verify it."""
    from imae.data.sources.catalog import fetch

    typer.echo(f"{name} is in {fetch(name, root)}")
    say_next("imae", "train", name, *_in_root(root))


@data.command("verify")
def verify_set(name: str = _NAME, root: Path | None = _ROOT) -> None:
    """Decode a set and compare its hashes with the published ones, where there are any."""
    from imae.data.sources.catalog import named_set, verify

    for array, digest in verify(name, root).items():
        typer.echo(f"{digest}  {array}")
    is_published = named_set(name).has_hashes
    typer.echo(f"{name} is {'the published set' if is_published else 'complete'}")
    say_next("imae", "train", name, *_in_root(root))


def noise(
    data: str = typer.Argument(..., help="Name of a data set, or a path to your own."),
    kind: str = typer.Option("symmetric", help="Kind of noise; see `imae list noise`."),
    rate: float = typer.Option(..., help="Share of the labels to change, in [0, 1)."),
    seed: int = typer.Option(DEFAULT_SEED, help="Random seed."),
    out: Path = typer.Option(..., help="Label file to write (CSV)."),
    mapping: str | None = typer.Option(
        None, "--map", help="For pairs: FROM:TO,FROM:TO by class name or number."
    ),
    exact: bool = typer.Option(False, "--exact", help="Change exactly this share of the rows."),
    root: Path | None = ROOT,
    label_column: str | None = LABEL_COLUMN,
    id_column: str | None = ID_COLUMN,
    drop: list[str] | None = DROP,
    overwrite: bool = OVERWRITE,
) -> None:
    """Write the labels of DATA with noise of a known kind."""
    from imae.data import describe, load
    from imae.noise import NoiseSpec, write_manifest
    from imae.records.files import check_overwriting
    from imae.train.relabel import corrupt_split

    spec = NoiseSpec(kind, rate)  # refused before the data is read
    check_choice("the extension of --out", out.suffix.lower(), (".csv",))
    refuse_overwriting(data, out)
    check_overwriting(out, overwrite=overwrite)
    columns = column_options(label_column, id_column, drop)
    loaded = load(data, root=root, **columns)
    typer.echo(describe(loaded), err=True)
    split = loaded.train
    noisy = corrupt_split(split, spec, seed=seed, mapping=mapping, exact=exact)
    write_manifest(out, noisy, split.labels, split.row_ids)
    typer.echo(
        f"{int(noisy.is_flipped.sum())} of {len(split)} labels changed "
        f"({noisy.realised_rate:.4f}), {spec}, seed {seed}: {out}"
    )
    say_next("imae", "train", data, *column_words(columns), *_in_root(root), "--labels", out)


_SETTINGS = "settings"
# What can be listed, and a command that uses such a name.
_NEXT = {
    "losses": "curves LOSS",
    "methods": "train DATA --loss NAME",
    "noise": "noise DATA --kind NAME --rate 0.4 --out labels.csv",
    "models": "train DATA --model NAME",
    "data": "train NAME",
    "recipes": "reproduce NAME",
    _SETTINGS: "train DATA --set KEY=VALUE",
}
_KINDS = tuple(_NEXT)


def list_entries(
    kind: str = typer.Argument(..., help=f"What to list: {', '.join(_KINDS)}."),
) -> None:
    """List losses, methods, noise, models, data, recipes or settings by name.

    `imae list settings` lists what `--set KEY=VALUE` can set.
    """
    check_choice("what to list", kind, _KINDS)
    width = Console().width
    shared: dict[str, Any] = {}
    if kind == _SETTINGS:
        table = _setting_table()
    elif kind == "data":
        table = set_table(None, width=width)
    else:
        entries = list(_catalog(kind))
        shared = _shared_defaults(entries)
        table = _entry_table(entries, shared, width)
    print_table(table)
    if shared:
        line = f"Many also take {_defaults_text(shared)}."
        typer.echo(textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False))
    say_next("imae", *_NEXT[kind].split())


def _setting_table() -> Table:
    import_extra("pydantic", extra="train")
    from imae.train.config import known_settings

    table = Table("setting", "what it is", "default")
    table.columns[0].no_wrap = True
    for setting in known_settings():
        is_empty = setting.default in (None, {}, ())
        default = "" if is_empty else str(setting.default)
        table.add_row(setting.key, escape(setting.meaning), escape(default))
    return table


def _shared_defaults(entries: Sequence[Entry[Any]]) -> dict[str, Any]:
    """The parameters that a quarter of the entries have with one default, its most usual one."""
    counts = Counter(pair for entry in entries for pair in entry.defaults.items())
    rising = sorted(counts.items(), key=lambda each: each[1])
    return {key: value for (key, value), count in rising if 4 * count >= len(entries)}


def _defaults_text(defaults: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_short(value)}" for key, value in defaults.items())


def _short(value: object) -> str:
    text = str(value)
    return f"{value:.4g}" if isinstance(value, float) and len(text) > _LONGEST_NUMBER else text


def _entry_table(entries: Sequence[Entry[Any]], shared: Mapping[str, Any], width: int) -> Table:
    """The entries with the parameters that are their own; a column without content is left out."""
    rows = []
    for entry in entries:
        own = {
            key: value
            for key, value in entry.defaults.items()
            if (key, value) not in shared.items()
        }
        reference = entry.reference if width >= WIDE else ""  # a narrow one has no room for papers
        rows.append((entry.name, entry.summary, _defaults_text(own), reference))
    headings = ("name", "what it is", "parameters", "reference")
    kept = [place for place in range(len(headings)) if any(row[place] for row in rows)]
    table = Table(*(headings[place] for place in kept))
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(*(escape(row[place]) for place in kept))
    return table


def _catalog(kind: str) -> Catalog[Any]:
    # Each is imported only when needed: a list of losses does not wait for the networks to load.
    if kind == "losses":
        from imae.curves import CURVES

        return CURVES
    if kind == "methods":
        from imae.methods import METHODS

        return METHODS
    if kind == "noise":
        from imae.noise import KINDS

        return KINDS
    if kind == "models":
        from imae.models import MODELS

        return MODELS
    from imae.recipes import RECIPES

    return RECIPES


_PAPER_LOSSES = ("cce", "mae", "imae:T=8")
_NUM_CLASSES = 10
_PAPER_T = (16, 8, 4, 2, 1, 0.5, 0)
# Uncertain against wrong, uncertain against right, wrong against right.
_RATIOS = ((0.5, 0.1), (0.5, 0.9), (0.1, 0.9))


def curves(
    losses: list[str] | None = typer.Argument(
        None,
        metavar="[LOSS]...",
        help="Losses to compare, such as `gce` or `imae:T=16`. Default: those of the paper.",
    ),
    out: Path | None = typer.Option(
        None, help="Folder for the figures, PNG and SVG. Default: none."
    ),
) -> None:
    """Show which examples each loss weights most: a table, and the paper's figures."""
    from imae.curves import parse_curve
    from imae.recipes.tables.paper_figures import draw_values, draw_weights

    names = tuple(losses) if losses else _PAPER_LOSSES + tuple(f"imae:T={T:g}" for T in _PAPER_T)
    chosen = {name: parse_curve(name) for name in dict.fromkeys(names)}
    console = Console()
    print_table(_weights(chosen), console)
    print_table(_bounds(chosen), console)
    if out is None:
        say_next("imae", "curves", *(losses or ()), "--out", "figures")
        return
    compared = {name: parse_curve(name) for name in losses or _PAPER_LOSSES}
    by_T = {f"T = {T:g}": parse_curve(f"imae:T={T:g}") for T in _PAPER_T}  # noqa: N806
    for path in [
        *draw_weights(out, "weights", "Weight of an example", compared),
        *draw_weights(out, "imae_weights", "Weight of an example under IMAE", by_T),
        *draw_values(out, "values", compared),
    ]:
        console.print(f"wrote {path}", soft_wrap=True, highlight=False, markup=False)
    say_next("imae", "train", "DATA", "--loss", "NAME")


def _weights(chosen: "dict[str, Curve]") -> Table:
    from imae.curves import impact_ratio, mean_weight, weight_variance

    table = Table(title="Weight w(p) for label probabilities p spread evenly over [0, 1]")
    table.add_column("loss", no_wrap=True)
    for heading in ("mean", "variance", *(f"w({p:g}) / w({other:g})" for p, other in _RATIOS)):
        table.add_column(heading, justify="right")
    for name, curve in chosen.items():
        numbers = [mean_weight(curve), weight_variance(curve)]
        numbers += [impact_ratio(curve, p, other) for p, other in _RATIOS]
        table.add_row(name, *(f"{number:.3f}" for number in numbers))
    return table


def _bounds(chosen: "dict[str, Curve]") -> Table:
    from imae.curves import label_sum_range, loss_supremum

    table = Table(title=f"Bounds of the loss, and its sum over {_NUM_CLASSES} labels")
    table.add_column("loss", no_wrap=True)
    for heading in ("supremum", "smallest sum", "largest sum", "symmetric"):
        table.add_column(heading, justify="right")
    for name, curve in chosen.items():
        low, high = label_sum_range(curve, _NUM_CLASSES)
        is_symmetric = "yes" if math.isclose(low, high, rel_tol=1e-9) else "no"
        numbers = (loss_supremum(curve), low, high)
        table.add_row(name, *(f"{number:.3f}" for number in numbers), is_symmetric)
    return table
