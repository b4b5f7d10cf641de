"""`imae audit` from the command line, with an audit that was made before."""

import csv
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from dataclasses import replace

import numpy as np
import pytest

from imae.audit import Audit
from imae.audit import audit as find_wrong
from imae.audit.cards import suspects
from imae.audit.correct import draw_sample, lower_bound
from imae.audit.decisions import Decision, identity, read_decisions, write_decisions
from imae.cli.app import main
from imae.cli.audit import _suggesting_another_run, _suggesting_audit, _summarise
from imae.cli.review import _about, write_pages
from imae.data import Table, load
from imae.errors import DataError
from imae.records import RunFolder
from imae.train import Stopped

CONFIG = {"data": {"name": "digits"}}


@pytest.fixture(scope="module")
def digits():
    return load("digits").train


@pytest.fixture
def run(tmp_path, digits):
    """A run folder on digits, audited: the first 40 rows are flagged."""
    number = 300
    folder = RunFolder(tmp_path / "run")
    folder.write_config(CONFIG)
    wrong = np.linspace(1, 0, number)
    given = digits.labels[:number]
    is_flagged = np.arange(number) < 40
    Audit(
        row_ids=digits.row_ids[:number],
        given=given,
        class_names=digits.class_names,
        suspicion=wrong,
        wrong_probability=wrong,
        suggested=np.where(is_flagged, (given + 1) % 10, given),
        suggested_probability=wrong,
        is_flagged=is_flagged,
        fits_no_class=np.zeros(number, bool),
        group=np.full(number, -1),
        noise_rate=0.13,
        noise_rate_low=0.1,
        noise_rate_high=0.16,
        transition=np.eye(10),
    ).save(folder)
    return folder.path


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_decisions_are_applied(run, tmp_path, capsys):
    audit = Audit.load(RunFolder(run))
    decisions = {
        0: Decision("accept", 3, by="person"),
        1: Decision("keep", by="person"),
        2: Decision("no_class", by="person"),
    }
    write_decisions(audit, decisions, tmp_path / "decisions.csv")
    out = tmp_path / "labels.csv"
    arguments = ["audit", "apply", str(run), str(tmp_path / "decisions.csv"), "--out", str(out)]
    assert main([*arguments, "--accept-above", "0.9"]) == 0
    said = capsys.readouterr().out
    assert "300 labels: 1 changed by people, 27 by the program, 1 removed, 1 confirmed" in said
    assert f"next: imae train digits --labels {out}" in said
    assert len(rows_of(out)) == 300
    assert len(rows_of(tmp_path / "labels.trail.csv")) == 30


def test_the_served_decisions_are_applied_if_none_are_named(run, tmp_path, capsys):
    out = tmp_path / "labels.csv"
    assert main(["audit", "apply", str(run), "--out", str(out)]) == 2
    assert f"review with `imae audit serve {run}`" in capsys.readouterr().err
    audit = Audit.load(RunFolder(run))
    write_decisions(
        audit, {5: Decision("relabel", 9, by="person")}, run / "audit" / "decisions.csv"
    )
    assert main(["audit", "apply", str(run), "--out", str(out)]) == 0
    assert rows_of(out)[5]["label"] == "9"


def test_the_next_command_names_the_features_of_the_run(run, tmp_path, capsys):
    (run / "config.json").write_text(
        json.dumps({"data": {"name": "photos", "features": "efficientnet_lite0"}})
    )
    out = tmp_path / "labels.csv"
    assert main(["audit", "apply", str(run), "--accept-above", "0.9", "--out", str(out)]) == 0
    next_command = f"next: imae train photos --features efficientnet_lite0 --labels {out}"
    assert next_command in capsys.readouterr().out


def test_decisions_are_not_overwritten_and_bad_ones_write_nothing(run, tmp_path, capsys):
    audit = Audit.load(RunFolder(run))
    file = tmp_path / "decisions.csv"
    write_decisions(audit, {5: Decision("keep", by="person")}, file)
    before = file.read_bytes()
    assert main(["audit", "apply", str(run), str(file), "--out", str(file)]) == 2
    assert "would overwrite" in capsys.readouterr().err
    assert file.read_bytes() == before
    file.write_bytes(before.replace(str(audit.row_ids[5]).encode(), b"nobody"))
    out = tmp_path / "labels.csv"
    assert main(["audit", "apply", str(run), str(file), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "row 'nobody': is not a row of this run" in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_files_are_overwritten_only_if_asked_for_and_the_data_never(run, tmp_path, capsys):
    table, out = tmp_path / "messy.csv", tmp_path / "labels.csv"
    table.write_text("mine")
    config = {"data": {"name": str(table), "labels": str(tmp_path / "given.csv")}}
    (run / "config.json").write_text(json.dumps(config))
    (tmp_path / "given.csv").write_text("first round")
    (tmp_path / "labels.trail.csv").write_text("first round")
    apply = ["audit", "apply", str(run), "--accept-above", "0.9", "--out"]
    for taken, words in (
        (out, "labels.trail.csv: exists already"),
        (table, "is the data itself"),
        (tmp_path / "given.csv", "would overwrite"),
        (run / "audit" / "decisions.csv", "is a file of a run"),
    ):
        arguments = [*apply, str(taken), *([] if taken == out else ["--overwrite"])]
        assert main(arguments) == 2
        assert words in capsys.readouterr().err
    assert not out.exists()
    assert table.read_text() == "mine"
    assert (tmp_path / "labels.trail.csv").read_text() == "first round"
    assert main([*apply, str(out), "--overwrite"]) == 0
    assert rows_of(tmp_path / "labels.trail.csv")


def test_the_trail_beside_labels_that_are_read_is_not_overwritten(run, tmp_path, capsys):
    labels, trail = tmp_path / "labels.csv", tmp_path / "labels.trail.csv"
    apply = ["audit", "apply", str(run)]
    assert main([*apply, "--accept-above", "0.9", "--out", str(labels)]) == 0
    before = trail.read_bytes()
    for out in (trail, tmp_path / "labels.parquet"):  # of which it would be the trail too
        assert main([*apply, str(labels), "--overwrite", "--out", str(out)]) == 2
        assert f"would overwrite {trail}" in capsys.readouterr().err
    assert trail.read_bytes() == before
    file = tmp_path / "again.csv"
    write_decisions(Audit.load(RunFolder(run)), {0: Decision("keep", by="person")}, file)
    for _ in range(2):  # a file of decisions has no trail
        out = tmp_path / "again.parquet"
        assert main([*apply, str(file), "--overwrite", "--out", str(out)]) == 0


@pytest.mark.parametrize(
    ("command", "name"), [(("export", "--format", "mask"), "a.csv"), (("check",), "a.html")]
)
def test_other_results_are_overwritten_only_if_asked_for(run, tmp_path, capsys, command, name):
    out = tmp_path / name
    out.write_text("mine")
    arguments = ["audit", command[0], str(run), *command[1:], "--out", str(out)]
    assert main(arguments) == 2
    assert "exists already" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert main([*arguments, "--overwrite"]) == 0


def test_the_next_command_names_labels_that_are_not_there(audited, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels.trail.csv").write_text("first round")
    assert main(["audit", str(audited)]) == 0
    assert f"imae audit apply {audited} --out labels-2.csv" in capsys.readouterr().out


def test_the_next_command_has_every_option_of_the_data(run, tmp_path, capsys):
    options = {"drop": ["a;b"], "feature_columns": ["x", "y"]}
    data = {
        "name": "my photos",
        "root": "/a b",
        "features": "f",
        "hold_out": 0.2,
        "options": options,
    }
    data |= {"labels": "old.csv", "own_validation": False}
    (run / "config.json").write_text(json.dumps({"data": data}))
    out = tmp_path / "labels.csv"
    assert main(["audit", "apply", str(run), "--accept-above", "0.9", "--out", str(out)]) == 0
    words = shlex.split(capsys.readouterr().out.split("next: ")[1])
    assert words[:5] == ["imae", "train", "my photos", "--drop", "a;b"]
    assert words[5:9] == ["--set", "data.options.feature_columns=x,y", "--root", "/a b"]
    assert words[9:] == ["--features", "f", "--set", "data.hold_out=0.2", "--labels", str(out)]


def test_accept_above_names_its_option(run, tmp_path, capsys):
    out = str(tmp_path / "l.csv")
    assert main(["audit", "apply", str(run), "--accept-above", "90", "--out", out]) == 2
    assert "--accept-above must be in [0, 1], got 90" in capsys.readouterr().err


def test_a_check_writes_its_page_then_its_bound(run, tmp_path, capsys):
    assert main(["audit", "check", str(run), "--rows", "10", "--seed", "3"]) == 0
    assert "judged 0 of 10" in capsys.readouterr().out
    page = (run / "audit" / "check.html").read_text()
    audit = Audit.load(RunFolder(run))
    sample = draw_sample(audit, 10, seed=3).tolist()
    assert page.count("data:image/png") == 10
    assert all(f"row {audit.row_ids[row]}" in page for row in sample)
    made = {
        row: Decision("no_class" if place else "keep", by="person")
        for place, row in enumerate(sample)
    }
    write_decisions(audit, made, tmp_path / "judged.csv")
    arguments = ["audit", "check", str(run), "--rows", "10", "--seed", "3", "--confidence", "0.9"]
    assert main([*arguments, "--decisions", str(tmp_path / "judged.csv")]) == 0
    bound = lower_bound(9, 10, confidence=0.9)
    floor = math.floor(1000 * bound) / 10
    sentence = f"with 90% confidence at least {floor:.1f}% of all 40 flagged labels are wrong"
    assert sentence in capsys.readouterr().out
    assert json.loads((run / "audit" / "check.json").read_text())["num_wrong"] == 9
    assert sentence in (run / "audit" / "review.html").read_text()


@pytest.mark.parametrize("previews", [0, 7])
def test_a_complete_check_keeps_the_number_of_previews(run, previews):
    write_pages(run, most_previews=previews)
    audit = Audit.load(RunFolder(run))
    made = {row: Decision("no_class", by="person") for row in np.flatnonzero(audit.is_flagged)}
    write_decisions(audit, made, run / "audit" / "decisions.csv")
    assert main(["audit", "check", str(run), "--rows", "10"]) == 0
    page = (run / "audit" / "review.html").read_text()
    assert "found 10 of 10 randomly drawn flagged rows wrong" in page
    assert page.count("data:image/png") == previews


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "RUN", "--seed", "-1"], "seed must be at least 0"),
        (["check", "RUN", "--out", "page.txt"], "the page must end in .html"),
        (["run", "digits", "--precision", "2", "--out", "new"], "--precision must be in (0, 1]"),
    ],
)
def test_options_out_of_range_are_one_line(run, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(["audit", *(str(run) if word == "RUN" else word for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_check_notices_that_other_rows_are_flagged(run, capsys):
    folder = RunFolder(run)
    audit = Audit.load(folder)
    flagged = np.flatnonzero(audit.is_flagged).tolist()
    made = {row: Decision("no_class", by="person") for row in flagged}
    write_decisions(audit, made, run / "audit" / "decisions.csv")
    assert main(["audit", "check", str(run), "--rows", "20"]) == 0
    assert "found 20 of 20 randomly drawn flagged rows wrong" in capsys.readouterr().out
    audit.is_flagged[[0, 299]] = [False, True]  # as many, and others
    audit.save(folder)
    write_pages(run, most_previews=0)
    assert "randomly drawn" not in (run / "audit" / "review.html").read_text()
    assert main(["audit", "check", str(run), "--rows", "40"]) == 0
    said = capsys.readouterr()
    assert "Note: the flagged rows are not those of the last check" in said.err
    assert "judged 39 of 40" in said.out
    assert f"imae audit check {run} --rows 40 --decisions FILE" in said.out
    assert main(["audit", "check", str(run), "--rows", "40"]) == 0
    assert "Note" not in capsys.readouterr().err


def written_by_imae(run, folder, kind):
    """A file that imae wrote into a folder, and no person has seen."""
    out = folder / {"mask": "a.npy", "mask-csv": "a.csv", "fiftyone": "a.json"}.get(kind, "l.csv")
    if kind not in ("accepted", "unchanged"):
        words = ["--format", kind.partition("-")[0], "--out", str(out)]
        assert main(["audit", "export", str(run), *words]) == 0
        return out
    none, above = folder / "none.csv", "0" if kind == "accepted" else "1"
    none.write_text("row_id,given,decision,label\n")
    words = [str(none), "--accept-above", above] if kind == "accepted" else [str(none)]
    assert main(["audit", "apply", str(run), *words, "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize("kind", ["accepted", "unchanged", "fiftyone", "mask", "mask-csv"])
def test_no_file_of_imae_itself_passes_as_the_judgement_of_a_person(run, tmp_path, capsys, kind):
    file = written_by_imae(run, tmp_path, kind)
    capsys.readouterr()
    assert main(["audit", "check", str(run), "--decisions", str(file)]) == 2
    said = capsys.readouterr()
    assert f"{file}: no person has judged any row there" in said.err
    assert said.err.count("\n") == 1
    assert "A person" not in said.out
    assert not (run / "audit" / "check.json").exists()
    out = tmp_path / "again.csv"
    assert main(["audit", "apply", str(run), str(file), "--out", str(out)]) == 0
    number = 40 if kind in ("accepted", "fiftyone") else 0
    said = capsys.readouterr().out
    assert f"300 labels: 0 changed by people, {number} by the program, 0 removed, 0 conf" in said
    assert [row["by"] for row in rows_of(tmp_path / "again.trail.csv")] == number * ["program"]


@pytest.mark.parametrize("kind", ["mask", "mask-csv"])
def test_the_program_may_accept_what_a_mask_only_marks(run, tmp_path, capsys, kind):
    mask, out = written_by_imae(run, tmp_path, kind), tmp_path / "labels.csv"
    capsys.readouterr()
    words = ["audit", "apply", str(run), str(mask), "--out", str(out), "--accept-above"]
    assert main([*words, "0.9"]) == 0
    said = capsys.readouterr()
    assert "300 labels: 0 changed by people, 30 by the program, 0 removed, 0 conf" in said.out
    assert said.err == ""
    assert {row["by"] for row in rows_of(tmp_path / "labels.trail.csv")} == {"program"}


def test_why_the_program_accepts_nothing_is_said(run, tmp_path, capsys):
    audit = Audit.load(RunFolder(run))
    judged = [Decision("skip", by="person"), Decision("keep", by="person")] * 20
    file = tmp_path / "decisions.csv"
    apply = ["audit", "apply", str(run), str(file), "--overwrite", "--out"]
    words = [*apply, str(tmp_path / "labels.csv"), "--accept-above", "0.99"]
    write_decisions(audit, dict(enumerate(judged[:4])), file)
    assert main(words) == 0
    said = capsys.readouterr().err
    assert "the highest certainty of such a row is 0.98\n" in said  # 0.9866, of the fifth row
    write_decisions(audit, dict(enumerate(judged)), file)
    assert main(words) == 0
    said = capsys.readouterr().err
    assert "no flagged row that nobody has looked at has a suggestion\n" in said


def test_a_check_counts_the_rows_that_people_judged_and_no_others(run, tmp_path, capsys):
    audit = Audit.load(RunFolder(run))
    decisions = dict.fromkeys(range(5), Decision("keep", by="person"))
    write_decisions(audit, decisions, tmp_path / "decisions.csv")
    words = [str(tmp_path / "decisions.csv"), "--accept-above", "0", "--out"]
    labels = tmp_path / "labels.csv"
    assert main(["audit", "apply", str(run), *words, str(labels)]) == 0
    words = ["--decisions", str(labels), "--rows", "40"]
    assert main(["audit", "check", str(run), *words]) == 0
    assert "A person has judged 5 of 40 randomly drawn" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["audit.json", "audit.npz", "decisions.csv", "check.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
@pytest.mark.parametrize("command", ["serve", "check", "run"])
def test_what_is_not_a_file_is_refused(run, tmp_path, capsys, name, kind, command):
    path = run / "audit" / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")
    assert main(["audit", command, str(run)]) == 2
    error = capsys.readouterr().err
    assert f"{name}: is not a regular file" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("format", "name"), [("label-studio", "a.json"), ("fiftyone", "a.json"), ("mask", "a.npy")]
)
def test_the_audit_is_exported(run, tmp_path, format, name):
    out = tmp_path / name
    assert main(["audit", "export", str(run), "--format", format, "--out", str(out)]) == 0
    assert out.stat().st_size > 100


@pytest.mark.parametrize("command", ["serve", "check"])
def test_a_run_that_was_not_audited_is_one_line(tmp_path, capsys, command):
    folder = RunFolder(tmp_path / "run")
    folder.write_config(CONFIG)
    assert main(["audit", command, str(folder.path)]) == 2
    assert f"has not been audited; start with: imae audit {folder.path}" in capsys.readouterr().err


def test_data_that_is_gone_is_said_and_the_page_has_no_pictures(run, capsys):
    RunFolder(run).write_config({"data": {"name": "gone/photos"}})
    assert main(["audit", "check", str(run), "--rows", "4"]) == 0
    assert "rows are shown without pictures or texts: " in capsys.readouterr().err
    assert "data:image" not in (run / "audit" / "check.html").read_text()


def test_only_flagged_rows_are_in_the_summary(run, capsys):
    found = Audit.load(RunFolder(run))
    is_flagged = np.arange(len(found)) < 2
    _summarise(replace(found, is_flagged=is_flagged), run, run / "audit" / "review.html")
    said = capsys.readouterr().out
    assert [str(row_id) in said for row_id in found.row_ids[:4]] == [True, True, False, False]
    none = replace(found, is_flagged=np.zeros(len(found), bool))
    _summarise(none, run, run / "audit" / "review.html")
    assert "suggested" not in capsys.readouterr().out


# Ctrl-C is heard even where the tests run in the background, whose processes do not hear it.
SERVE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from imae.cli.app import main
sys.exit(main())
"""


def test_a_served_review_ends_cleanly_and_nobody_else_serves_it(run, capsys):
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, "audit", "serve", str(run)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=unbuffered(),
    )  # fmt: skip
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        address = process.stdout.readline().split()[1]
        audit = Audit.load(RunFolder(run))
        with urllib.request.urlopen(address, timeout=30) as answer:
            page = answer.read().decode()
        mark = page.split('"identity": "')[1].split('"')[0]
        change = {"row_id": str(audit.row_ids[1]), "decision": "keep"}
        body = json.dumps({"identity": mark, "changes": [change]}).encode()
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{address}decisions", body, headers)).close()
        assert list(read_decisions(audit, [run / "audit" / "decisions.csv"])) == [1]
        assert main(["audit", "serve", str(run)]) != 0
        refused = capsys.readouterr().err
        process.send_signal(signal.SIGINT)
        said, error = process.communicate(timeout=30)
    finally:
        watchdog.cancel()
        process.kill()
    assert process.returncode == 0
    assert error == ""
    assert "decisions.csv: 1" in said
    assert "another process is serving this review" in refused
    assert refused.count("\n") == 1
    assert "next: imae audit apply" in said


@pytest.mark.parametrize(
    ("display", "is_terminal", "options", "expected"),
    [(":0", True, (), 1), (":0", True, ("--no-open",), 0), (":0", False, (), 0), ("", True, (), 0)],
)
def test_the_review_is_opened_where_there_is_a_display(
    run, monkeypatch, display, is_terminal, options, expected
):
    opened = []
    monkeypatch.setattr("imae.cli.review.webbrowser.open", opened.append)
    monkeypatch.setattr("imae.audit.serve.Server.serve_forever", lambda _: None)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", display)
    assert main(["audit", "serve", str(run), *options]) == 0
    assert len(opened) == expected
    assert all(address.startswith("http://127.0.0.1:") for address in opened)


def unbuffered():
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


TRAIN = ("--epochs", "2", "--set", "model.name=mlp", "--set", "noise=symmetric:0.3")


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A run of the command on digits with noise."""
    out = tmp_path_factory.mktemp("runs") / "digits"
    assert main(["audit", "digits", *TRAIN, "--out", str(out)]) == 0
    return out


def test_the_title_of_the_page_names_the_data_and_the_day(audited, tmp_path):
    day = str(RunFolder(audited).env()["started"])[:10]
    text = (audited / "audit" / "review" / "page-0001.html").read_text()
    assert f"<title>imae audit: digits, {day}, " in text
    assert f"<small>digits, {day}</small></h1>" in text
    assert _about(tmp_path) == ""  # a folder that says nothing of its data


def test_data_is_trained_on_audited_and_summarised(audited, capsys):
    before = (audited / "audit" / "audit.npz").read_bytes()
    assert main(["audit", "digits", *TRAIN, "--out", str(audited)]) == 0  # finished: not trained
    said = capsys.readouterr().out
    found = Audit.load(RunFolder(audited))
    first = found.rows()[0]
    assert all(str(first[key]) in said for key in ("row_id", "given", "suggested"))
    assert said.count("digits/") >= 10
    assert f"10 of {found.is_flagged.sum()} flagged rows shown, the most suspect first" in said
    assert f"About {100 * found.noise_rate:.1f}% of 1,442 labels are wrong (range " in said
    assert f"rows to review: {found.is_flagged.sum()} flagged" in said
    assert f"{audited / 'audit' / 'suspects.csv'}" in said
    assert f"imae audit serve {audited}" in said
    assert (audited / "audit" / "audit.npz").read_bytes() == before
    assert list((audited / "audit").glob("review*"))


def test_a_run_is_audited_as_it_is(audited, capsys):
    assert main(["audit", str(audited), "--precision", "0.9", "--previews", "3"]) == 0
    found = Audit.load(RunFolder(audited))
    assert found.wrong_probability[found.is_flagged].mean() >= 0.89
    pages = [path.read_text() for path in (audited / "audit").rglob("review*.html")]
    pages += [path.read_text() for path in (audited / "audit" / "review").glob("*.html")]
    assert sum(page.count("data:image/png") for page in pages) == 3
    capsys.readouterr()
    assert main(["audit", str(audited), "--epochs", "3"]) == 2
    assert "is a run with its own settings" in capsys.readouterr().err


def test_changed_data_is_refused_and_moved_data_shows_no_cells(tmp_path, capsys):
    table, out = tmp_path / "table.csv", tmp_path / "run"
    lines = [f"{row % 2 * 9 + row % 7},{row},{'ab'[row % 2 ^ (row % 9 == 4)]}" for row in range(60)]
    table.write_text("\n".join(["size,cell,label", *lines]))
    words = ["--epochs", "9", "--set", "model.name=mlp", "--drop", "cell"]
    assert main(["audit", str(table), *words, "--out", str(out)]) == 0
    assert main(["audit", str(out)]) == 0
    table.write_text("\n".join(["size,cell,label", *lines[::-1]]))
    for command in (["audit", str(out)], ["audit", "check", str(out)]):
        capsys.readouterr()
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "is not what was trained on or audited" in said
        assert "imae audit DATA" in said
    table.rename(tmp_path / "moved.csv")
    assert main(["audit", str(out)]) == 0
    assert "rows are shown without pictures or texts: " in capsys.readouterr().err


@pytest.mark.parametrize(("number", "is_few"), [(40, True), (400, False)])
def test_a_share_by_few_rows_is_not_to_be_trusted(tmp_path, capsys, number, is_few):
    table = tmp_path / "table.csv"
    lines = [f"{row % 2 * 9 + row % 7},{'ab'[row % 2]}" for row in range(number)]
    table.write_text("\n".join(["size,label", *lines]))
    assert main(["audit", str(table), "--epochs", "9", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().err
    assert ("only 4 rows were not trained on" in said) == is_few
    assert ("look at the rows, not at the share" in said) == is_few


def test_where_perhaps_no_label_is_wrong_a_sample_is_judged_first(tmp_path, capsys):
    drawn = np.random.default_rng(0)  # rows that say nothing of their class
    rows = [",".join(f"{each:.3f}" for each in row) for row in drawn.normal(size=(300, 20))]
    table, out = tmp_path / "table.csv", tmp_path / "run"
    names = ",".join(f"c{number}" for number in range(20))
    lines = [f"{row},{'abc'[number % 3]}" for number, row in enumerate(rows)]
    table.write_text("\n".join([f"{names},label", *lines]))
    assert main(["audit", str(table), "--epochs", "9", "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "of 300 labels are wrong, perhaps none; about " in said
    assert f"Judge a sample of them first: imae audit check {out}" in said
    found = Audit.load(RunFolder(out))
    assert found.wrong_probability.max() <= 0.75  # no row is sure where perhaps none is wrong
    assert found.wrong_probability.mean() <= found.noise_rate + 0.01
    assert found.suggested_probability[found.is_flagged].max() <= 0.75
    labels = str(tmp_path / "labels.csv")
    assert main(["audit", "apply", str(out), "--accept-above", "0.9", "--out", labels]) == 0
    said = capsys.readouterr().err
    assert "no suggestion for a row that nobody looked at is that certain; the highest" in said
    assert main(["audit", str(out), "--precision", "0.9"]) == 0
    assert not Audit.load(RunFolder(out)).is_flagged.any()
    said = " ".join(capsys.readouterr().out.split())
    assert "No row is flagged at --precision 0.9: the most suspect one is wrong with" in said


def test_a_rare_class_that_was_given_up_names_the_whole_command(tmp_path, capsys):
    draws, table = np.random.default_rng(1), tmp_path / "my table.csv"
    rows = [(*(draws.normal(size=2) + 1.5 * (n % 12 == 0)), "ny"[n % 12 == 0]) for n in range(120)]
    lines = [f"{a:.3f},{b:.3f},{answer},{a}" for a, b, answer in rows]
    table.write_text("\n".join(["a,b,answer,c", *lines]))
    words = [str(table), "--label-column", "answer", "--drop", "c", "--epochs", "9", "--seed", "3"]
    (tmp_path / "run-2").mkdir()
    assert main(["audit", *words, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "draw rare classes more often: imae audit " in said
    command = shlex.split(said[said.index("imae audit") :])
    assert set(words) < set(command)
    assert command[-1] == str(tmp_path / "run-3")
    assert main(command[1:]) == 0
    assert (tmp_path / "run-3" / "audit" / "audit.npz").exists()


@pytest.mark.parametrize(
    ("words", "is_completed"),
    [(["my data"], True), (["my data", "--set", "method.name=cce"], False), ([], False)],
)
def test_a_run_that_learned_nothing_names_the_command_of_another_loss(
    tmp_path, words, is_completed
):
    remedy = "train it with another method, such as --loss cce, or with another --T or more epochs"
    with pytest.raises(DataError) as caught, _suggesting_another_run(tmp_path / "run", words):
        raise DataError(f"run: has learned nothing; {remedy}, and audit that run")
    command = f"imae audit 'my data' --set method.name=cce --out {tmp_path / 'run-2'}"
    completed = f"run: has learned nothing; train it with another method: {command}"
    assert (str(caught.value) == completed) == is_completed


@pytest.mark.parametrize(
    ("command", "suggested"),
    [
        ("imae train --resume 'my run'", "imae audit 'my run'"),
        ("imae train --resume run --model nets:net", "imae train --resume run --model nets:net"),
    ],
)
def test_a_stopped_audit_names_a_command_that_exists(command, suggested):
    with pytest.raises(Stopped, match=f"continue with: {suggested}$"), _suggesting_audit():
        raise Stopped(f"stopped; continue with: {command}", 130)


def test_corrected_labels_are_trained_on(audited, tmp_path):
    labels = str(tmp_path / "labels.csv")
    assert main(["audit", "apply", str(audited), "--accept-above", "0.5", "--out", labels]) == 0
    again = tmp_path / "again"
    arguments = ["--labels", labels, "--steps", "1", "--model", "mlp", "--out", str(again)]
    assert main(["train", "digits", *arguments]) == 0
    given = {row["row_id"]: row["label"] for row in rows_of(tmp_path / "labels.csv")}
    trained = RunFolder(again).labels()
    assert [given[row_id] for row_id in trained.row_ids] == [
        trained.class_names[label] for label in trained.given
    ]


def test_a_second_round_keeps_what_the_first_removed_and_refuses_rows_in_another_order(
    tmp_path, capsys
):
    table = tmp_path / "table.csv"
    lines = [f"{row % 2 * 9 + row % 7},{'ab'[row % 2 ^ (row % 9 == 4)]}" for row in range(60)]
    table.write_text("\n".join(["size,label", *lines]))
    (tmp_path / "decided.csv").write_text(
        "row_id,given,decision,label\n4,b,relabel,a\n7,b,no_class,\n"
    )

    def told(*words):
        return main([str(word) for word in words])

    words = ["--epochs", "9", "--set", "model.name=mlp"]
    runs, files = [tmp_path / "1", tmp_path / "2"], [tmp_path / "1.csv", tmp_path / "2.csv"]
    assert told("audit", table, *words, "--out", runs[0]) == 0
    assert told("audit", "apply", runs[0], tmp_path / "decided.csv", "--out", files[0]) == 0
    assert told("audit", table, "--labels", files[0], *words, "--out", runs[1]) == 0
    assert told("audit", "apply", runs[1], "--accept-above", 1, "--out", files[1]) == 0
    first, second = ({row["row_id"]: row for row in rows_of(file)} for file in files)
    assert len(second) == 60
    assert (second["7"]["removed"], second["4"]["given"]) == ("no class", "b")
    assert all(second[row]["given"] == first[row]["given"] for row in first)
    assert told("train", table, "--labels", files[1], "--steps", 1, "--out", tmp_path / "3") == 0
    table.write_text("\n".join(["size,label", *lines[::-1]]))
    capsys.readouterr()
    assert told("train", table, "--labels", files[1], "--steps", 1, "--out", tmp_path / "4") == 2
    assert "so row ids may mean other rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "is_kept"),
    [("data.rows=50", False), ("data.trusted=6", True), ("method.name=l2rw", True)],
)
def test_corrected_labels_of_a_part_of_the_rows_are_trained_on(tmp_path, capsys, setting, is_kept):
    table, run, out = tmp_path / "table.csv", tmp_path / "run", tmp_path / "labels.csv"
    kinds = [row % 2 for row in range(80)]
    given = ["ab"[kind ^ (row % 9 == 4)] for row, kind in enumerate(kinds)]
    lines = [f"{9 * kind + row % 7},{given[row]},{'ab'[kind]}" for row, kind in enumerate(kinds)]
    table.write_text("\n".join(["size,label,clean_label", *lines]))
    words = ["--epochs", "9", "--seed", "5", "--set", "model.name=mlp", "--set", setting]
    assert main(["audit", str(table), *words, "--out", str(run)]) == 0
    used = set(Audit.load(RunFolder(run)).row_ids.tolist())
    assert main(["audit", "apply", str(run), "--accept-above", "0.5", "--out", str(out)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next: ")]
    rows = rows_of(out)
    others = [row for row in rows if row["row_id"] not in used]
    assert len(rows) == 80
    assert {row["row_id"] for row in rows} == {str(row) for row in range(80)}
    assert [row["given"] for row in others] == [given[int(row["row_id"])] for row in others]
    for row in others:
        expected = (row["given"], "") if is_kept else ("", "not sampled")
        assert (row["label"], row["removed"]) == expected
    again = tmp_path / "again"
    assert main([*shlex.split(line)[2:], "--steps", "1", "--out", str(again)]) == 0
    trained = set(RunFolder(again).labels().row_ids.tolist())
    trained |= set(RunFolder(again).held_labels().row_ids.tolist())
    assert trained == ({row["row_id"] for row in rows} if is_kept else used)
    table.write_text("\n".join(["size,label,clean_label", *lines[::-1]]))
    apply = ["audit", "apply", str(run), "--accept-above", "0.5", "--overwrite"]
    assert main([*apply, "--out", str(out)]) == 2
    assert "is not what was trained on" in capsys.readouterr().err
    table.unlink()
    assert main([*apply, "--out", str(out)]) == 2
    assert "a file of corrected labels names all of them" in capsys.readouterr().err


def test_a_stopped_run_is_resumed(audited, tmp_path, capsys):
    stopped = tmp_path / "stopped"
    shutil.copytree(audited, stopped)
    (stopped / "result.json").unlink()
    shutil.rmtree(stopped / "audit")
    assert main(["audit", str(stopped)]) == 0
    assert (stopped / "result.json").exists()
    assert "rows to review" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "words", "is_told"),
    [
        ("photos", [], True),
        ("photos.csv", [], True),
        ("photos", ["--features", "efficientnet_lite0"], False),
        ("numbers.csv", [], False),
        ("arrays", [], False),
        ("digits", [], False),
    ],
)
def test_photos_are_said_to_need_features_before_they_are_trained_on(
    tmp_path, monkeypatch, capsys, data, words, is_told
):
    def stopped(*_, **__):
        raise Stopped("stopped", 130)

    monkeypatch.setattr("imae.train.train", stopped)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    (tmp_path / "photos" / "cat" / "a.JPG").write_bytes(b"")
    (tmp_path / "arrays").mkdir()
    (tmp_path / "photos.csv").write_text("path,label\na.jpg,cat\n")
    (tmp_path / "numbers.csv").write_text("a,label\n1,cat\n")
    assert main(["audit", data, *words]) == 130
    said = capsys.readouterr().err
    assert ("from scratch" in said) == ("--features efficientnet_lite0 trains" in said) == is_told


def test_a_stopped_audit_names_the_command_that_continues_it(audited, monkeypatch, capsys):
    def stopped(*_, **__):
        raise Stopped("stopped after step 3; continue with: imae train --resume runs/a", 130)

    monkeypatch.setattr("imae.train.resume", stopped)
    assert main(["audit", str(audited)]) == 130
    assert capsys.readouterr().err == (
        "imae: stopped after step 3; continue with: imae audit runs/a\n"
    )


def test_a_folder_with_a_run_on_other_data_is_left_alone(audited, capsys):
    before = (audited / "config.json").read_bytes()
    assert main(["audit", "mnist", "--out", str(audited)]) == 2
    assert "(data.name is digits, here mnist; noise is symmetric:0.3, " in capsys.readouterr().err
    assert (audited / "config.json").read_bytes() == before


def test_the_same_command_audits_the_finished_run_again(tmp_path, monkeypatch, capsys):
    """Its paths are absolute where they are stored."""
    monkeypatch.chdir(tmp_path)
    lines = [f"{row % 2},{row % 3},{'ab'[row % 2]}" for row in range(400)]
    (tmp_path / "table.csv").write_text("\n".join(["x,z,label", *lines]))
    (tmp_path / "old.csv").write_text("\n".join(["row_id,label", *(f"{n},a" for n in range(400))]))
    command = ["audit", "table.csv", "--epochs", "10", "--out", "checked"]
    assert main(command) == 0
    trained = (tmp_path / "checked" / "history.jsonl").read_bytes()
    assert main(command) == 0
    assert (tmp_path / "checked" / "history.jsonl").read_bytes() == trained
    capsys.readouterr()
    assert main([*command, "--labels", "old.csv", "--seed", "7"]) == 2
    said = capsys.readouterr().err
    full = tmp_path / "old.csv"
    assert f"(data.labels is not set, here {full}; seed is 123, here 7)" in said
    assert "or audit that run: imae audit checked" in said


def test_a_run_or_data_may_be_called_like_a_command(audited, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("run", "check"):
        shutil.copytree(audited, name)
        assert main(["audit", name, "--precision", "0.9"]) == 0
        assert f"imae audit serve {name}" in capsys.readouterr().out
    assert main(["audit", "run", "check"]) == 0
    assert "imae audit serve check" in capsys.readouterr().out
    assert main(["audit", "check", "run"]) == 0
    assert "randomly drawn flagged rows" in capsys.readouterr().out
    assert main(["audit", "run", "--no-such-option"]) == 2
    assert main(["audit", "run", "--help"]) == 0
    assert "--precision" in capsys.readouterr().out


def test_suspects_are_listed(audited):
    found = Audit.load(RunFolder(audited))
    listed = rows_of(audited / "audit" / "suspects.csv")
    assert [row["row_id"] for row in listed] == found.row_ids[suspects(found)].tolist()
    assert sum(row["is_flagged"] == "True" for row in listed) == found.is_flagged.sum()
    first = found.order()[0]
    assert listed[0]["given"] == found.class_names[found.given[first]]
    assert float(listed[0]["wrong_probability"]) == pytest.approx(
        found.wrong_probability[first], abs=1e-4
    )


def test_probabilities_of_other_data_do_not_replace_an_audit(digits, tmp_path, capsys):
    np.save(tmp_path / "p.npy", np.eye(10)[digits.labels] * 0.9 + 0.01)
    out = tmp_path / "out"
    arguments = ["--probabilities", str(tmp_path / "p.npy"), "--out", str(out)]
    assert main(["audit", "digits", *arguments]) == 0
    before = (out / "audit" / "audit.npz").read_bytes()
    assert main(["audit", "mnist", *arguments]) == 2
    assert "holds an audit of other data" in capsys.readouterr().err
    assert (out / "audit" / "audit.npz").read_bytes() == before


def test_probabilities_do_not_touch_a_folder_of_other_files(digits, tmp_path, capsys):
    np.save(tmp_path / "p.npy", np.eye(10)[digits.labels] * 0.9 + 0.01)
    page = tmp_path / "mine" / "audit" / "review.html"
    page.parent.mkdir(parents=True)
    page.write_text("mine")
    arguments = ["--probabilities", str(tmp_path / "p.npy"), "--out", str(tmp_path / "mine")]
    assert main(["audit", "digits", *arguments]) == 2
    error = capsys.readouterr().err
    assert "holds files but no run, such as audit; choose another --out" in error
    assert error.count("\n") == 1
    assert [each for each in (tmp_path / "mine").rglob("*") if each.is_file()] == [page]
    assert page.read_text() == "mine"


def test_a_run_without_dynamics_is_one_line(audited, tmp_path, capsys):
    bare = tmp_path / "bare"
    shutil.copytree(audited, bare)
    shutil.rmtree(bare / "dynamics")
    assert main(["audit", str(bare)]) == 2
    assert "has no dynamics" in capsys.readouterr().err


def test_probabilities_are_judged_without_training(digits, tmp_path, capsys):
    certain = np.full((len(digits), 10), 0.003)
    certain[np.arange(len(digits)), digits.labels] = 0.973
    for place in range(400):  # these contradict their labels
        certain[place] = np.roll(certain[place], 1 + place % 9)
    np.save(tmp_path / "p.npy", certain)
    out = tmp_path / "out"
    arguments = ["audit", "digits", "--probabilities", str(tmp_path / "p.npy"), "--out", str(out)]
    assert main(arguments) == 0
    assert set(Audit.load(RunFolder(out)).order()[:400].tolist()) == set(range(400))
    assert not (out / "config.json").exists()
    assert "data:image/png" in (out / "audit" / "review.html").read_text()
    assert (
        main(["audit", "apply", str(out), "--out", str(tmp_path / "l.csv"), "--accept-above", "0"])
        == 0
    )
    assert "next: imae train digits" in capsys.readouterr().out
    lines = [",".join(["row_id", *(f"p({name})" for name in digits.class_names)])]
    for place in reversed(range(len(digits))):  # rows are found by their ids
        lines.append(",".join([digits.row_ids[place], *map(str, certain[place])]))
    (tmp_path / "p.csv").write_text("\n".join(lines))
    assert main([*arguments[:3], str(tmp_path / "p.csv"), "--out", str(tmp_path / "again")]) == 0
    one, two = (Audit.load(RunFolder(tmp_path / name)) for name in ("out", "again"))
    assert one.suspicion.tolist() == two.suspicion.tolist()
    (tmp_path / "p.csv").write_text("\n".join(lines).replace(",0.973", ",0.5", 1))
    assert main([*arguments[:3], str(tmp_path / "p.csv"), "--out", str(tmp_path / "no")]) == 2
    said = f"p.csv: probabilities of row {str(digits.row_ids[-1])!r} must be at least 0 and sum"
    assert said in capsys.readouterr().err
    for line, message in ((lines[-1], "appears 2 times"), ("x" + lines[-1], "is not in the data")):
        (tmp_path / "p.csv").write_text("\n".join([*lines, line]))
        assert main([*arguments[:3], str(tmp_path / "p.csv"), "--out", str(tmp_path / "no")]) == 2
        assert message in capsys.readouterr().err


def test_data_that_changed_after_its_probabilities_were_judged_is_refused(
    tmp_path, monkeypatch, capsys
):
    kinds = np.arange(60) % 2
    given = np.where(np.arange(60) < 9, 0, kinds)  # wrong in four rows
    lines = [f"{'ab'[kinds[row]]} {row},{'ab'[given[row]]}" for row in range(60)]
    table, out = tmp_path / "texts.csv", tmp_path / "out"
    table.write_text("\n".join(["text,label", *lines]))
    np.save(tmp_path / "p.npy", np.eye(2)[kinds] * 0.92 + 0.04)
    monkeypatch.chdir(tmp_path)
    assert main(["audit", "texts.csv", "--probabilities", "p.npy", "--out", "out"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # the data is found from anywhere
    labels = ["--accept-above", "0.5", "--out", "labels.csv"]
    assert main(["audit", "apply", str(out), *labels]) == 0
    said = capsys.readouterr()
    assert f"next: imae train {table} --labels labels.csv" in said.out
    assert main(["audit", "check", str(out), "--rows", "2"]) == 0
    assert "without pictures or texts" not in capsys.readouterr().err
    assert 'class="words">b ' in (out / "audit" / "check.html").read_text()
    table.write_text("\n".join(["text,label", "a new row,a", *lines]))
    before = (out / "audit" / "check.html").read_bytes()
    assert main(["audit", "check", str(out), "--rows", "2"]) == 2
    said = capsys.readouterr().err
    assert f"{table}: is not what was trained on or audited" in said
    assert said.count("\n") == 1
    assert (out / "audit" / "check.html").read_bytes() == before


def test_decisions_on_other_labels_are_not_left_in_an_audit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    kinds = np.arange(60) % 2

    def write(given):
        lines = [f"{'ab'[kinds[row]]} {row},{'ab'[given[row]]}" for row in range(60)]
        (tmp_path / "texts.csv").write_text("\n".join(["text,label", *lines]))

    write(np.where(np.arange(60) < 9, 0, kinds))
    np.save(tmp_path / "p.npy", 0.1 + 0.8 * np.eye(2)[kinds])
    words = ["audit", "texts.csv", "--probabilities", "p.npy", "--out", "out"]
    assert main(words) == 0
    mark = identity(Audit.load(RunFolder("out")))
    assert f"decisions-{mark[:8]}.csv" in "".join(capsys.readouterr().out.split())
    (tmp_path / "out" / "audit" / "decisions.csv").write_text("mine")
    write(kinds)
    assert main(words) == 2
    assert "holds decisions about other rows or labels" in capsys.readouterr().err
    assert (tmp_path / "out" / "audit" / "decisions.csv").read_text() == "mine"


def test_options_of_a_sample_need_check(audited, capsys):
    assert main(["audit", "serve", str(audited), "--rows", "50"]) == 2
    assert "--rows, --confidence and --seed are of the sample: add --check" in (
        capsys.readouterr().err
    )


def test_probabilities_are_not_of_a_run(audited, tmp_path, capsys):
    words = ["--probabilities", str(tmp_path / "p.npy"), "--out", str(tmp_path / "out")]
    assert main(["audit", str(audited), *words]) == 2
    assert f"{audited}: is a run; --probabilities judges data" in capsys.readouterr().err


def test_probabilities_are_compared_with_those_of_similar_rows(digits, tmp_path, monkeypatch):
    draws = np.random.default_rng(0)
    is_right = draws.random(len(digits)) < 0.7
    likely = np.eye(10)[np.where(is_right, digits.labels, (digits.labels + 3) % 10)] * 0.8 + 0.02
    np.save(tmp_path / "p.npy", likely)
    values = np.eye(10)[digits.labels] + 0.3 * draws.normal(size=(len(digits), 10))
    table = Table(values.astype(np.float32))

    def extractor(name):
        assert name == "efficientnet_lite0"
        return lambda split: replace(split, inputs=table)

    monkeypatch.setattr("imae.audit.sources.frozen_features", extractor)
    out = tmp_path / "out"
    words = ["audit", "digits", "--probabilities", str(tmp_path / "p.npy"), "--out", str(out)]
    for further, features in (([], None), (["--features", "efficientnet_lite0"], table.values)):
        assert main([*words, *further]) == 0
        expected = find_wrong(likely, given=digits.labels, features=features)
        assert Audit.load(RunFolder(out)).suspicion.tolist() == expected.suspicion.tolist()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--epochs", "3"], "--epochs is"),
        (["--seed", "3"], "--seed is"),
        (["--noise", "symmetric:0.2"], "noise is"),
        (["--set", "data.rows=50"], "data.rows is"),
    ],
)
def test_settings_of_a_training_are_refused_with_probabilities(tmp_path, capsys, words, named):
    arguments = ["--probabilities", str(tmp_path / "p.npy"), "--out", str(tmp_path / "out")]
    assert main(["audit", "digits", *arguments, *words]) == 2
    error = capsys.readouterr().err
    assert named in error
    assert "--probabilities needs no training" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p[:-1], "must be of shape"),
        (lambda p: p[:, :9] / 0.9, "has 9 columns, but the data has 10 classes ('0', '1', "),
        (lambda p: p * 2, "sum to 1"),
        (lambda p: p.astype(str), "one matrix of numbers"),
    ],
)
def test_probabilities_that_do_not_fit_are_one_line(digits, tmp_path, capsys, change, message):
    np.save(tmp_path / "p.npy", change(np.full((len(digits), 10), 0.1)))
    arguments = ["audit", "digits", "--probabilities", str(tmp_path / "p.npy")]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert main(arguments) == 2
    assert "needs --out" in capsys.readouterr().err


def test_help_names_every_part(capsys):
    assert main(["audit", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(f" {name} " in said for name in ("run", "serve", "check", "apply", "export"))
    assert all(name in said for name in ("DATA|RUN", "--precision", "--probabilities"))
    assert main(["audit", "run", "--help"]) == 0
    said = capsys.readouterr().out
    assert "--precision" in said
    assert "range" not in said
    assert main(["audit", "apply", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "by default the one that `imae audit serve` wrote" in said
