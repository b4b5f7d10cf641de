"""`imae audit serve | check | apply | export`: what people do with an audit."""

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from imae.cli.app import column_words
from imae.errors import ArgumentError, ImaeError

if TYPE_CHECKING:
    from imae.audit.cards import Preview, Previewer

_RUN = typer.Argument(..., metavar="RUN", help="Run folder that `imae audit` has audited.")


def serve(
    run: Path = _RUN,
    port: int = typer.Option(0, show_default="any that is free", help="Port on this machine."),
    check: bool = typer.Option(
        False, "--check", help="Serve the random sample of `imae audit check` instead."
    ),
    rows: int = typer.Option(100, help="Size of that sample."),
    confidence: float = typer.Option(0.95, help="Confidence of its bound."),
    seed: int = typer.Option(123, help="Seed of that sample."),
) -> None:
    """Review suspects in a browser; decisions are written into the run as they are made.

    The page is served to this machine only, at an address with a random token. Ctrl-C ends it.
    """
    from imae.audit.correct import Sample, draw_sample
    from imae.audit.result import Audit
    from imae.audit.serve import Review, Server
    from imae.records import RunFolder

    audit = Audit.load(RunFolder(run))
    sample = Sample(draw_sample(audit, rows, seed=seed), confidence) if check else None
    file = _decisions_file(run)
    review = Review(audit, file, sample=sample, preview=_previews(run))
    try:
        server = Server(review, port=port)
    except (OSError, OverflowError) as error:
        raise ArgumentError(f"--port {port}: cannot be used ({error})") from None
    typer.echo(f"Open {server.address}")
    typer.echo(f"Decisions are written to {file}; press Ctrl-C when you are done.")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo("")
    finally:
        server.server_close()
    typer.echo(f"decisions in {file}: {len(review.decisions)}")
    if review.decisions:
        step = f"check {run}" if check else f"apply {run} --out labels.csv"
        typer.echo(f"next: imae audit {step}")


def check(
    run: Path = _RUN,
    decisions: list[Path] | None = typer.Option(
        None, show_default="those of `imae audit serve`", help="File of decisions; may be repeated."
    ),
    rows: int = typer.Option(100, help="Flagged rows to judge, drawn at random."),
    confidence: float = typer.Option(0.95, help="Confidence of the bound."),
    seed: int = typer.Option(123, help="Seed of the draw."),
    out: Path | None = typer.Option(
        None, show_default="RUN/audit/check.html", help="Page on which to judge them."
    ),
) -> None:
    """Bound how many of the flagged labels are wrong, from a random sample that you judge.

    The first call writes the page. Judge all of its rows, download the decisions, and call it
    again with --decisions. Without a person no method can promise such a bound.
    """
    from imae.audit.correct import Sample, draw_sample, save_check
    from imae.audit.correct import check as check_flagged
    from imae.audit.decisions import read_decisions
    from imae.audit.page import write_check_page
    from imae.audit.result import Audit
    from imae.records import RunFolder

    audit = Audit.load(RunFolder(run))
    files = decisions or [path for path in [_decisions_file(run)] if path.exists()]
    made = read_decisions(audit, files)
    found = check_flagged(audit, made, num_rows=rows, confidence=confidence, seed=seed)
    typer.echo(found.sentence())
    if found.is_complete:
        save_check(found, run / "audit" / "check.json")
        write_pages(run, most_previews=None)
        return
    page = out or run / "audit" / "check.html"
    sample = Sample(draw_sample(audit, rows, seed=seed), confidence)
    write_check_page(audit, sample, page, preview=_previews(run))
    typer.echo(f"wrote {page}")
    typer.echo(
        f"Judge its rows and download the decisions, then: imae audit check {run} --decisions FILE "
        f"(or judge them with: imae audit serve {run} --check)"
    )


def apply(
    run: Path = _RUN,
    decisions: list[Path] | None = typer.Argument(
        None, help="Files of decisions [those of `imae audit serve`]."
    ),
    out: Path = typer.Option(..., help="File for the corrected labels, .csv or .parquet."),
    accept_above: float | None = typer.Option(
        None,
        show_default="none",
        help="Also accept suggestions at least so certain for rows that nobody looked at.",
    ),
) -> None:
    """Write corrected labels for `imae train --labels`, and a trail of every change."""
    from imae.audit.correct import correct, write_corrected
    from imae.audit.decisions import read_decisions
    from imae.audit.result import Audit
    from imae.records import RunFolder

    audit = Audit.load(RunFolder(run))
    files = list(decisions or [path for path in [_decisions_file(run)] if path.exists()])
    if not files and accept_above is None:
        raise ArgumentError(
            f"no decisions about {run} yet: review with `imae audit serve {run}`, name the file "
            "that the page wrote, or let the program decide with --accept-above 0.9"
        )
    for file in files:
        for written in (out, out.with_suffix(".trail.csv")):
            if file.exists() and written.exists() and os.path.samefile(file, written):
                raise ArgumentError(f"--out {out}: would overwrite {file}; name another file")
    trail = correct(audit, read_decisions(audit, files), accept_above=accept_above)
    trail_file = write_corrected(audit, trail, out)
    changed = [each for each in trail if each.new is not None and each.new != each.old]
    people = sum(each.by == "person" for each in changed)
    removed = sum(each.new is None for each in trail)
    kept = len(trail) - len(changed) - removed
    typer.echo(
        f"{len(audit)} labels: {people} changed by people, {len(changed) - people} by the program, "
        f"{removed} removed, {kept} confirmed"
    )
    typer.echo(f"wrote {out} and {trail_file}")
    typer.echo(f"next: imae train {_data_arguments(run)} --labels {out}")


def export(
    run: Path = _RUN,
    format: str = typer.Option(..., help="label-studio, fiftyone or mask."),
    out: Path = typer.Option(..., help="File to write: .json; for a mask .npy or .csv."),
) -> None:
    """Write the audit for Label Studio or FiftyOne, or as a mask of suspect rows."""
    from imae.audit.label_tools import export as export_audit
    from imae.audit.result import Audit
    from imae.records import RunFolder

    export_audit(Audit.load(RunFolder(run)), out, format=format)
    typer.echo(f"wrote {out}")


def _decisions_file(run: Path) -> Path:
    """File of the decisions that are made on the served page."""
    return run / "audit" / "decisions.csv"


def write_data_settings(folder: Path, data: Mapping[str, object]) -> None:
    """Writes which data was audited, for a folder that is not a run."""
    from imae.records.files import whole_file

    with whole_file(folder / "audit" / "data.json") as file:
        file.write(json.dumps(data, indent=2).encode() + b"\n")


def _settings(run: Path) -> Mapping[str, Any]:
    """Settings of the run; of a folder that is not a run, those of the audited data."""
    from imae.records import RunFolder
    from imae.records.files import parse_object

    path = run / "audit" / "data.json"
    if RunFolder(run).exists() or not path.exists():
        return RunFolder(run).config()
    return {"data": parse_object(path.read_bytes(), str(path))}


def _data_arguments(run: Path) -> str:
    """What follows `imae train` to train on the same rows: the data, its columns and features."""
    from imae.report.formats import printable

    try:
        data = _settings(run)["data"]
        name = printable(data["name"])
    except (ImaeError, KeyError, TypeError):
        return "DATA"
    words = column_words(data.get("options") or {})
    if data.get("features"):
        words += ["--features", data["features"]]
    return " ".join([name, *(shlex.quote(printable(word)) for word in words)])


def _previews(run: Path) -> "Previewer":
    """Previews of the rows of a run, or none and a line that says why."""
    from imae.audit.cards import no_previews, previews_of

    try:
        return previews_of(_settings(run))
    except (ImaeError, OSError) as error:
        typer.echo(f"imae: rows are shown without pictures or texts: {error}", err=True)
        return no_previews


def write_pages(run: Path, *, most_previews: int | None) -> Path:
    """Writes the review page of an audited run and returns the file to open."""
    from imae.audit.cards import suspects
    from imae.audit.correct import read_check
    from imae.audit.page import MOST_PREVIEWS, write_review
    from imae.audit.result import Audit
    from imae.records import RunFolder

    audit = Audit.load(RunFolder(run))
    most = MOST_PREVIEWS if most_previews is None else most_previews
    with _counted(_previews(run), min(most, len(suspects(audit)))) as preview:
        first, *_ = write_review(
            audit,
            run / "audit" / "review.html",
            preview=preview,
            most_previews=most,
            checked=read_check(audit, run / "audit" / "check.json"),
        )
    typer.echo(f"wrote {first}")
    return first


@contextlib.contextmanager
def _counted(preview: "Previewer", total: int) -> Iterator["Previewer"]:
    """Shows on a terminal how many of the previews are made."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task("previews", total=total)

        def counted(row_id: str) -> "Preview | None":
            bar.advance(task)
            return preview(row_id)

        yield counted
