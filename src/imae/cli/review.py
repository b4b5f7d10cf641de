"""`imae audit serve | check | apply | export`: what people do with an audit."""

import contextlib
import json
import math
import os
import sys
import webbrowser
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from imae._draws import DEFAULT_SEED
from imae.cli.app import OVERWRITE, column_words, command_line, refuse_overwriting, say
from imae.errors import ArgumentError, ChangedDataError, DataError, ImaeError, check_interval

if TYPE_CHECKING:
    from imae.audit.cards import Preview, Previewer, Rows
    from imae.audit.correct import Checked
    from imae.audit.result import Audit
    from imae.audit.serve import Review

_RUN = typer.Argument(..., metavar="RUN", help="Run folder that `imae audit` has audited.")
_ROWS = 100  # to judge in a check
_CONFIDENCE = 0.95
_PAGES = "pages.json"  # how the pages were written
_CONTENT = "content"  # in the settings of audited data: hashes of its parts


def serve(
    run: Path = _RUN,
    port: int = typer.Option(0, show_default="any that is free", help="Port on this machine."),
    check: bool = typer.Option(
        False, "--check", help="Serve the random sample of `imae audit check` instead."
    ),
    rows: int = typer.Option(_ROWS, help="Size of that sample."),
    confidence: float = typer.Option(_CONFIDENCE, help="Confidence of its bound."),
    seed: int = typer.Option(DEFAULT_SEED, help="Seed of that sample."),
    no_open: bool = typer.Option(
        False, "--no-open", help="Print the address only, and do not open a browser."
    ),
) -> None:
    """Review suspects in a browser; decisions are written into the run as they are made.

    The page is served to this machine only, at an address with a random token, and opened where
    there is a display. Ctrl-C ends it.
    """
    from imae.audit.correct import Sample, draw_sample
    from imae.audit.correct import check as check_flagged
    from imae.audit.result import Audit
    from imae.audit.serve import Review
    from imae.records import RunFolder
    from imae.records.files import exclusive

    if not check and (rows, confidence, seed) != (_ROWS, _CONFIDENCE, DEFAULT_SEED):
        raise ArgumentError("--rows, --confidence and --seed are of the sample: add --check")
    audit = Audit.load(RunFolder(run))
    sample = Sample(draw_sample(audit, rows, seed=seed), confidence) if check else None
    file = _decisions_file(run)
    in_use = f"{run}: another process is serving this review; use its page, or stop it first"
    with exclusive(file.resolve().with_name("lock"), in_use, run=run, command="audit serve"):
        shown = _rows(run, audit)
        review = Review(audit, file, sample=sample, rows=shown, about=_about(run))
        if check:
            found = check_flagged(
                audit, review.decisions, num_rows=rows, confidence=confidence, seed=seed
            )
            _record_check(run, audit, found)
        _serve(review, port, is_opened=not no_open and has_display())
    typer.echo(f"decisions in {file}: {len(review.decisions)}")
    if review.decisions:
        sampled = ["check", run, *_sample_words(rows, confidence, seed)]
        step = sampled if check else ["apply", run, "--out", new_labels_file()]
        typer.echo(f"next: {command_line('imae', 'audit', *step)}")


def _serve(review: "Review", port: int, *, is_opened: bool) -> None:
    """Serves a review until Ctrl-C."""
    from imae.audit.serve import Server

    try:
        server = Server(review, port=port)
    except (OSError, OverflowError) as error:
        raise ArgumentError(f"--port {port}: cannot be used ({error})") from None
    typer.echo(f"Open {server.address}")
    typer.echo(f"Decisions are written to {review.path}; press Ctrl-C when you are done.")
    if is_opened:
        webbrowser.open(server.address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo("")
    finally:
        server.server_close()


def check(
    run: Path = _RUN,
    decisions: list[Path] | None = typer.Option(
        None, show_default="those of `imae audit serve`", help="File of decisions; may be repeated."
    ),
    rows: int = typer.Option(_ROWS, help="Flagged rows to judge, drawn at random."),
    confidence: float = typer.Option(_CONFIDENCE, help="Confidence of the bound."),
    seed: int = typer.Option(DEFAULT_SEED, help="Seed of the draw."),
    out: Path | None = typer.Option(
        None, show_default="in RUN/audit", help="Page on which to judge them."
    ),
    overwrite: bool = OVERWRITE,
) -> None:
    """Bound how many of the flagged labels are wrong, from a random sample that you judge.

    The first call writes the page. Judge all of its rows, download the decisions, and call it
    again with --decisions. Without a person no method can promise such a bound.
    """
    from imae.audit.correct import Sample, draw_sample
    from imae.audit.correct import check as check_flagged
    from imae.audit.decisions import read_decisions
    from imae.audit.page import write_check_page
    from imae.audit.result import Audit
    from imae.records import RunFolder

    audit = Audit.load(RunFolder(run))
    files = decisions or [path for path in [_decisions_file(run)] if path.exists()]
    if out is not None:
        _check_outputs(run, [out], files, overwrite=overwrite)
    made = read_decisions(audit, files)
    if decisions and all(each.is_by_program for each in made.values()):
        raise DataError(
            f"{', '.join(map(str, decisions))}: no person has judged any row there; judge the rows "
            f"of `{command_line('imae', 'audit', 'serve', run, '--check')}` or of the page that "
            f"`{command_line('imae', 'audit', 'check', run)}` writes"
        )
    found = check_flagged(audit, made, num_rows=rows, confidence=confidence, seed=seed)
    _record_check(run, audit, found)
    say(found.sentence())
    if found.is_complete:
        write_pages(run, most_previews=_previews_before(run))
        if out is not None:
            typer.echo(f"no page is needed any more; {out} was not written", err=True)
        return
    page = out or run / "audit" / "check.html"
    sample = Sample(draw_sample(audit, rows, seed=seed), confidence)
    preview = _rows(run, audit).preview
    write_check_page(audit, sample, page, preview=preview, about=_about(run))
    typer.echo(f"wrote {page}")
    words = _sample_words(rows, confidence, seed)
    again = command_line("imae", "audit", "check", run, *words, "--decisions", "FILE")
    served = command_line("imae", "audit", "serve", run, "--check", *words)
    typer.echo(
        f"Judge its rows and download the decisions, then: {again} (or judge them with: {served})"
    )


def _sample_words(rows: int, confidence: float, seed: int) -> list[str]:
    """The options that draw the same sample again, where they are not the defaults."""
    options = (
        ("rows", rows, _ROWS),
        ("confidence", confidence, _CONFIDENCE),
        ("seed", seed, DEFAULT_SEED),
    )
    return [
        word
        for name, value, default in options
        if value != default
        for word in (f"--{name}", str(value))
    ]


def _record_check(run: Path, audit: "Audit", found: "Checked") -> None:
    """Saves the sample and what was found, and prints a note if the last sample was of other rows.

    A bound for the rows that are flagged now is kept until there is a new one.
    """
    from imae.audit.correct import read_check, save_check

    path = run / "audit" / "check.json"
    before = read_check(path)
    is_current = before is not None and before.is_about(audit)
    if before is not None and not is_current:
        typer.echo(
            "Note: the flagged rows are not those of the last check; a new sample was drawn "
            f"from them, and {found.num_judged} of its {found.num_sampled} rows are judged",
            err=True,
        )
    if found.is_complete or before is None or not (is_current and before.is_complete):
        save_check(found, path)


def apply(
    run: Path = _RUN,
    decisions: list[Path] | None = typer.Argument(
        None,
        metavar="DECISIONS",
        show_default=False,
        help="Files of decisions; by default the one that `imae audit serve` wrote.",
    ),
    out: Path = typer.Option(..., help="File for the corrected labels, .csv or .parquet."),
    accept_above: float | None = typer.Option(
        None,
        show_default="none",
        help="Also accept suggestions of at least this certainty, from 0 to 1, for rows that "
        "nobody looked at.",
    ),
    overwrite: bool = OVERWRITE,
) -> None:
    """Write corrected labels for `imae train --labels`, and a trail of every change."""
    from imae.audit.correct import correct, left_to_program, write_corrected
    from imae.audit.decisions import read_decisions, trail_file
    from imae.audit.result import Audit
    from imae.records import RunFolder

    if accept_above is not None:
        check_interval("--accept-above", accept_above, low=0.0, high=1.0)
    audit = Audit.load(RunFolder(run))
    files = list(decisions or [path for path in [_decisions_file(run)] if path.exists()])
    if not files and accept_above is None:
        raise ArgumentError(
            f"no decisions about {run} yet: review with "
            f"`{command_line('imae', 'audit', 'serve', run)}`, name the file "
            "that the page wrote, or let the program decide with --accept-above 0.9"
        )
    _check_outputs(run, [out, trail_file(out)], files, overwrite=overwrite)
    made = read_decisions(audit, files)
    trail = correct(audit, made, accept_above=accept_above)
    in_data, earlier = _earlier_round(run, audit)
    others, of_others = _not_audited(run, {*audit.row_ids.tolist(), *earlier})
    in_data = None if in_data is None else {**of_others, **in_data}
    written = write_corrected(audit, trail, out, in_data=in_data, removed=earlier, others=others)
    changed = [each for each in trail if each.new is not None and each.new != each.old]
    people = sum(each.by == "person" for each in changed)
    removed = sum(each.new is None for each in trail)
    kept = len(trail) - len(changed) - removed
    typer.echo(
        f"{len(audit)} labels: {people} changed by people, {len(changed) - people} by the program, "
        f"{removed} removed, {kept} confirmed"
    )
    if accept_above is not None:
        certainty = audit.suggested_probability[left_to_program(audit, made)]
        if len(certainty) == 0:
            typer.echo(
                "Note: --accept-above accepts nothing: no flagged row that nobody has looked at "
                "has a suggestion",
                err=True,
            )
        elif certainty.max() < accept_above:
            typer.echo(
                "Note: no suggestion for a row that nobody looked at is that certain; the highest "
                f"certainty of such a row is {math.floor(100 * certainty.max()) / 100:.2f}",
                err=True,
            )
    typer.echo(f"wrote {out} and {written}")
    typer.echo(f"next: {_next_step(run, out)}")


def _earlier_round(run: Path, audit: "Audit") -> tuple[dict[str, str] | None, list[str]]:
    """Labels of the rows in the data itself by row id, and rows that an earlier round removed.

    The labels are those that were audited, or in a later round those in the file of the earlier
    one; None if they are unknown because noise was added or the file does not hold them.
    """
    from imae.train.relabel import read_label_file

    names = [audit.class_names[label] for label in audit.given]
    given = dict(zip(audit.row_ids.tolist(), names, strict=True))
    try:
        settings = _settings(run)
        path = settings["data"].get("labels")
        file = None if path is None else read_label_file(Path(path))
    except (ImaeError, KeyError):
        return None, []
    if file is None:
        is_of_data = path is None and settings.get("noise") is None
        return (given if is_of_data else None), []
    removed = [each for each in file.row_ids[file.is_removed].tolist() if each not in given]
    in_data = dict(zip(file.row_ids.tolist(), file.given or [], strict=False))
    return (in_data if given.keys() <= in_data.keys() else None), removed


def _not_audited(
    run: Path, accounted: Collection[str]
) -> tuple[list[tuple[str, str, str]], dict[str, str]]:
    """Training rows that a run did not use, for ``write_corrected``, and their labels in the data.

    Rows outside of a sample are removed, so that training sees the sample again. Rows that were
    set aside because their labels can be trusted keep them.

    Raises:
        DataError: If the data is not what was trained on, or is gone.
    """
    from imae.audit.sources import stored_content
    from imae.records import RunFolder
    from imae.train.rows import leaves_out_rows, unchanged_data
    from imae.train.run import Run

    folder = RunFolder(run)
    try:
        config = Run(run).config
    except ImaeError:  # of a folder that is no run, or of a run of another program
        return [], {}
    if not leaves_out_rows(config) or config.data.from_python:
        return [], {}
    try:
        train = unchanged_data(config.data.model_dump(), stored_content(folder)).train
    except ChangedDataError:
        raise
    except (ImaeError, OSError) as error:
        raise DataError(
            f"{error}; the run used a part of the training rows, and a file of corrected labels "
            "names all of them"
        ) from None
    names = [train.class_names[label] for label in train.labels.tolist()]
    labels = {
        row_id: name
        for row_id, name in zip(train.row_ids.tolist(), names, strict=True)
        if row_id not in accounted
    }
    word = "" if config.data.rows is None else "not sampled"
    return [(each, "" if word else name, word) for each, name in labels.items()], labels


def export(
    run: Path = _RUN,
    format: str = typer.Option(..., help="label-studio, fiftyone or mask."),
    out: Path = typer.Option(..., help="File to write: .json; for a mask .npy or .csv."),
    overwrite: bool = OVERWRITE,
) -> None:
    """Write the audit for Label Studio or FiftyOne, or as a mask of suspect rows."""
    from imae.audit.label_tools import export as export_audit
    from imae.audit.result import Audit
    from imae.records import RunFolder

    audit = Audit.load(RunFolder(run))
    _check_outputs(run, [out], [], overwrite=overwrite)
    export_audit(audit, out, format=format)
    typer.echo(f"wrote {out}")


def has_display() -> bool:
    """Whether this is an interactive terminal on a machine where a browser can be opened."""
    is_graphical = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return is_graphical and sys.stdout.isatty()


def _decisions_file(run: Path) -> Path:
    """File of the decisions that are made on the served page."""
    return run / "audit" / "decisions.csv"


def write_data_settings(
    folder: Path, data: Mapping[str, object], content: Mapping[str, str]
) -> None:
    """Writes which data was audited and the hashes of its parts, for a folder that is no run."""
    from imae.records.files import write_file

    text = json.dumps({**data, _CONTENT: dict(content)}, indent=2)
    write_file(folder / "audit" / "data.json", f"{text}\n")


def read_data_settings(folder: Path) -> tuple[dict[str, Any], dict[str, str]] | None:
    """What ``write_data_settings`` wrote, if it did."""
    from imae.records.files import parse_object, read_file

    path = folder / "audit" / "data.json"
    if not path.exists():
        return None
    data = parse_object(read_file(path), str(path))
    content = data.pop(_CONTENT, {})
    if not isinstance(content, dict):
        raise DataError(f"{path}: is damaged ({_CONTENT}); audit again")
    return data, content


def _settings(run: Path) -> Mapping[str, Any]:
    """Settings of the run; of a folder that is not a run, those of the audited data."""
    from imae.records import RunFolder

    audited = None if RunFolder(run).exists() else read_data_settings(run)
    return RunFolder(run).config() if audited is None else {"data": audited[0]}


def data_and_day(run: Path) -> tuple[str, str]:
    """Name of the data of a run, and the day on which it began; each is empty if it is unknown."""
    from imae.records import RunFolder

    try:
        name = Path(str(_settings(run)["data"]["name"])).name
    except (ImaeError, KeyError, TypeError):
        name = ""
    return name, str(RunFolder(run).env().get("started", ""))[:10]


def _about(run: Path) -> str:
    return ", ".join(filter(None, data_and_day(run)))


def _next_step(run: Path, labels: Path) -> str:
    """How to train on corrected labels: a command, where `imae train` can read the rows."""
    try:
        is_from_python = bool(_settings(run)["data"].get("from_python"))
    except (ImaeError, KeyError, AttributeError):
        is_from_python = False
    if is_from_python:
        return f"train on the labels in {labels} (columns row_id and label) where you trained"
    return command_line("imae", "train", *data_words(run), "--labels", labels)


def data_words(run: Path) -> list[str]:
    """Arguments of `imae train` for the same rows: the data and its options."""
    from imae.train.config import DataConfig

    try:
        settings = _settings(run)
        data = settings["data"]
        name = str(data["name"])
    except (ImaeError, KeyError, TypeError):
        return ["DATA"]
    words = [name, *column_words(data.get("options") or {})]
    for key in ("root", "features"):
        if data.get(key):
            words += [f"--{key}", str(data[key])]
    # The labels are corrected, and their file says which rows to use; planted labels were for the
    # audit only, and so was its own hold-out.
    done = ["name", "options", "root", "features", "labels", "planted", "own_validation", "rows"]
    done += [] if data.get("trusted") == "validation" else ["trusted"]
    for key, field in DataConfig.model_fields.items():
        if key not in done and data.get(key, field.default) != field.default:
            words += ["--set", f"data.{key}={data[key]}"]
    if data.get("balanced") and "train" in settings:  # it divides the size of a batch
        words += ["--set", f"train.batch_size={settings['train']['batch_size']}"]
    return words


def _check_outputs(
    run: Path, outputs: Iterable[Path], decisions: Iterable[Path], *, overwrite: bool
) -> None:
    """Raises if a file would be lost: the data, its labels, decisions, or any that exists.

    Args:
        run: The audited run.
        outputs: Files to write.
        decisions: Files that are read.
        overwrite: Whether other files that exist may be replaced.

    Raises:
        ArgumentError: If so.
    """
    from imae.audit.decisions import files_of
    from imae.records.files import check_overwriting

    try:
        data = _settings(run)["data"]
    except (ImaeError, KeyError):
        data = {}
    read = [file for path in decisions for file in files_of(path)]
    if data.get("labels"):
        read.append(Path(data["labels"]))
    for out in outputs:
        refuse_overwriting(str(data.get("name", "")), out)
        for file in read:
            if file.exists() and out.exists() and os.path.samefile(file, out):
                raise ArgumentError(f"--out {out}: would overwrite {file}; name another file")
        check_overwriting(out, overwrite=overwrite)


def new_labels_file() -> Path:
    """An unused file name for corrected labels and their trail.

    The labels of an earlier round are kept: a second round was trained on them.
    """
    from imae.audit.decisions import trail_file

    number, path = 1, Path("labels.csv")
    while path.exists() or trail_file(path).exists():
        number += 1
        path = Path(f"labels-{number}.csv")
    return path


def _rows(run: Path, audit: "Audit") -> "Rows":
    """The suspects of a run as people see them, or no rows and a message that says why.

    Raises:
        ChangedDataError: If the data is not what was audited.
    """
    from imae.audit.cards import Rows, suspects
    from imae.audit.sources import stored_content
    from imae.records import RunFolder

    try:
        settings = _settings(run)
        if settings.get("data", {}).get("from_python"):
            raise DataError("they were given to the training in Python")
        audited = None if RunFolder(run).exists() else read_data_settings(run)
        content = stored_content(RunFolder(run)) if audited is None else audited[1]
        return Rows.of_run(settings, audit.row_ids[suspects(audit)].tolist(), content)
    except ChangedDataError:
        raise
    except (ImaeError, OSError) as error:
        typer.echo(f"imae: rows are shown without pictures or texts: {error}", err=True)
        return Rows()


def _previews_before(run: Path) -> int | None:
    """How many rows got a preview when the pages were last written."""
    from imae.records.files import parse_object, read_file

    path = run / "audit" / _PAGES
    if not path.exists():  # of an earlier version
        return None
    number = parse_object(read_file(path), str(path)).get("most_previews")
    return number if isinstance(number, int) else None


def write_pages(run: Path, *, most_previews: int | None) -> Path:
    """Writes the list of suspects and the review page, and returns the file to open."""
    from imae.audit.cards import suspects, write_suspects
    from imae.audit.correct import read_check
    from imae.audit.page import MOST_PREVIEWS, write_review
    from imae.audit.result import Audit
    from imae.records import RunFolder
    from imae.records.files import write_file

    audit = Audit.load(RunFolder(run))
    most = MOST_PREVIEWS if most_previews is None else most_previews
    rows = _rows(run, audit)
    checked = read_check(run / "audit" / "check.json")
    is_current = checked is not None and checked.is_complete and checked.is_about(audit)
    write_suspects(audit, rows, run / "audit" / "suspects.csv")
    with _counted(rows.preview, min(most, len(suspects(audit)))) as preview:
        first, *_ = write_review(
            audit,
            run / "audit" / "review.html",
            preview=preview,
            most_previews=most,
            checked=checked if is_current else None,
            about=_about(run),
        )
    write_file(run / "audit" / _PAGES, f"{json.dumps({'most_previews': most})}\n")
    typer.echo(f"wrote {first}")
    return first


@contextlib.contextmanager
def _counted(preview: "Previewer", total: int) -> Iterator["Previewer"]:
    """Shows the number of finished previews on a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task("previews", total=total)

        def counted(row_id: str) -> "Preview | None":
            bar.advance(task)
            return preview(row_id)

        yield counted
