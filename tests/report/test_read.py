import json
import re

import pytest

from imae.errors import ArgumentError, DataError
from imae.records.files import hold
from imae.report.read import plain_text, read_run, read_runs


def test_a_finished_run_is_read_whole(make_run):
    run = read_run(make_run("cce-1", arguments={"q": 0.70, "base": "cce"}, seed=5))
    assert (run.name, run.seed, run.status) == ("cce-1", "5", "finished")
    assert run.setting == ("digits", "symmetric:0.4", "small_cnn")
    assert (run.loss, run.method) == ("cce", "cce:q=0.7,base=cce")
    assert [row["step"] for row in run.history] == [40, 80, 120, 160, 200, 240]
    assert run.measure("final", "test_accuracy") == run.history[-1]["test_accuracy"]
    assert run.measure("best_test", "test_accuracy") > run.measure("final", "test_accuracy")
    assert run.environment["torch"] == "2.13.0"


def test_no_noise_has_a_name(make_run):
    assert read_run(make_run(noise=None)).noise == "none"


def test_a_file_of_labels_stands_for_noise(make_run):
    folder = make_run(noise=None, extra={"data": {"name": "digits", "labels": "made/noisy.csv"}})
    assert read_run(folder).noise == "labels from noisy.csv"


def test_a_network_chosen_by_the_program_has_a_name(make_run):
    assert read_run(make_run(extra={"model": {"name": None}})).model == "automatic"


def test_a_matrix_has_a_short_name_of_its_own(make_run):
    names = []
    for wrong in (0.1, 0.2):
        matrix = [[1 - wrong, wrong, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
        arguments = {"matrix": matrix, "columns": [1, 2]}
        run = make_run(f"run-{wrong}", method="masking", arguments=arguments)
        names.append(read_run(run).method)
    first, second = names
    assert first != second
    assert re.fullmatch(r"masking:matrix=\[[0-9a-f]{8}\],columns=\[1, 2\]", first)


def test_unknown_measures_are_none(make_run):
    folder = make_run(rows=[{"step": 1, "test_accuracy": 0.5, "validation_accuracy": None}])
    run = read_run(folder)
    assert run.measure("final", "noisy_accuracy") is None
    assert run.measure("best", "test_accuracy") is None  # nothing was held out


@pytest.mark.parametrize("status", ["running", "stopped", "failed"])
def test_an_unfinished_run_says_how_it_stands(make_run, status):
    run = read_run(make_run(finished=False, progress={"status": status, "message": "full disk"}))
    assert (run.status, run.result) == (status, None)
    assert run.measure("final", "test_accuracy") is None


def test_a_run_whose_process_was_killed_is_stopped(make_run):
    folder = make_run(finished=False, progress={"status": "running"})
    with hold(folder):
        assert read_run(folder).status == "running"
    (folder / "lock").touch()  # as a killed process leaves it
    assert read_run(folder).status == "stopped"


@pytest.mark.parametrize("progress", [{"status": "finished"}, {"status": 3}, {}])
def test_a_run_without_a_result_is_never_finished(make_run, progress):
    assert read_run(make_run(finished=False, progress=progress or {"x": 1})).status == "running"


def test_a_run_that_has_only_begun_can_be_read(make_run):
    folder = make_run(finished=False)
    for path in ("history.jsonl", "env.json", "progress.json", "labels.npz"):
        (folder / path).unlink()
    run = read_run(folder)
    assert (run.status, run.history, dict(run.environment)) == ("running", (), {})


def test_a_line_that_is_being_written_is_left_out(make_run):
    folder = make_run(finished=False)
    with (folder / "history.jsonl").open("a") as file:
        file.write('{"step": 280, "test_acc')
    assert read_run(folder).history[-1]["step"] == 240


def test_a_folder_without_a_configuration_is_no_run(tmp_path):
    with pytest.raises(DataError, match=r"is not a run folder: it has no config\.json"):
        read_run(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "env.json", "result.json", "progress.json"])
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b'{"x": NaN}', b"\xff\xfe", b"[" * 100_000, b"\x00" * 20],
    ids=["empty", "cut", "list", "nan", "not utf-8", "nested", "zeros"],
)
def test_a_damaged_file_is_named_in_one_line(make_run, name, content):
    folder = make_run()
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=name.replace(".", r"\.")) as caught:
        read_run(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3", "line 1: must hold a JSON object"),
        ("{}", "line 1: must have a step after 0, got None"),
        ('{"step": "1"}', "line 1: must have a step after 0, got '1'"),
        ('{"step": true}', "line 1: must have a step after 0, got True"),
        ('{"step": 1e999}', "line 1: must have a step after 0, got inf"),
        ('{"step": 1, "test_accuracy": 1.01}', r"line 1: test_accuracy must be in \[0, 1\]"),
        ('{"step": 1, "noisy_accuracy": -0.1}', r"line 1: noisy_accuracy must be in \[0, 1\]"),
        ('{"step": 2}\n{"step": 2}', "line 2: must have a step after 2, got 2"),
        ('{"step": 2}\n\n{"step": 3}', "line 2: is not valid JSON"),
    ],
)
def test_a_bad_line_of_the_history_is_named(make_run, line, message):
    folder = make_run()
    (folder / "history.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=message):
        read_run(folder)


def test_accuracies_at_the_edges_are_fine(make_run):
    folder = make_run()
    (folder / "history.jsonl").write_text('{"step": 1, "test_accuracy": 0}\n{"step": 2}\n')
    (folder / "result.json").unlink()
    assert len(read_run(folder).history) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": {}}, "method.name must be text, got None"),
        ({"method": "cce"}, "method.name must be text"),
        ({"data": {"name": 3}}, "data.name must be text, got 3"),
        ({"model": None}, "model.name must be text"),
        ({"method": {"name": "cce", "arguments": [1]}}, "method.arguments must be an object"),
    ],
)
def test_a_configuration_that_breaks_the_contract_is_named(make_run, change, message):
    with pytest.raises(DataError, match=message):
        read_run(make_run(extra=change))


@pytest.mark.parametrize("moment", ["best", "best_test", "final"])
def test_a_bad_number_in_the_result_is_named(make_run, moment):
    folder = make_run()
    result = json.loads((folder / "result.json").read_text())
    result[moment]["test_accuracy"] = 80.0
    (folder / "result.json").write_text(json.dumps(result))
    with pytest.raises(DataError, match=rf"result\.json: '{moment}' is not in history"):
        read_run(folder)


def test_a_run_counts_once(make_run, tmp_path):
    folder = make_run("one")
    assert len(read_runs([folder, make_run("two")])) == 2
    with pytest.raises(ArgumentError, match="given twice"):
        read_runs([folder, tmp_path / "two" / ".." / "one"])


def test_no_run_is_refused():
    with pytest.raises(ArgumentError, match="at least one run"):
        read_runs([])


def test_plain_values_as_text():
    assert [plain_text(value) for value in ("a", 1, None, True, [1, "é"])] == [
        "a",
        "1",
        "null",
        "true",
        '[1, "é"]',
    ]
