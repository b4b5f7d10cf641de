import pytest
from typer.testing import CliRunner

from imae.cli.app import build
from imae.errors import ArgumentError, DataError, ImaeError
from imae.records import RunFolder
from imae.train import build_config, train


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    config = {
        "data": {"name": "digits"},
        "model": {"name": "mlp"},
        "train": {"steps": 3},
        "machine": {"accelerator": "cpu", "threads": 1},
        "out": str(tmp_path_factory.mktemp("runs") / "digits"),
    }
    return train(build_config(config)).path


@pytest.fixture
def run():
    app = build()

    def invoke(*arguments):
        return CliRunner().invoke(app, ["export", *map(str, arguments)], env={"COLUMNS": "200"})

    return invoke


@pytest.mark.parametrize(
    "format",
    [
        # tests/train/test_export.py writes both without the command.
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("onnx", "torch")),
        "safetensors",
    ],
)
def test_a_file_is_written_and_nothing_else_is_said(run, digits_run, format, tmp_path):
    out = tmp_path / "deep" / "network"
    result = run(digits_run, "--format", format, "--out", out, "--which", "best")
    assert result.exit_code == 0, result.exception
    assert result.stdout == f"wrote {out}\n"
    assert result.stderr == f"next: imae predict {digits_run} DATA --which best\n"
    assert out.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["nowhere", "--out", "x"], DataError, "nowhere is not a run"),
        (["RUN", "--out", "x", "--format", "keras"], ArgumentError, "format must be one of onnx"),
        (["RUN", "--out", "x", "--which", "last"], ArgumentError, "which must be one of final"),
        (
            ["RUN", "--out", "/dev/null/x", "--format", "safetensors"],
            ImaeError,
            "/dev/null/x: cannot be written",
        ),
    ],
)
def test_a_mistake_is_one_line(run, digits_run, arguments, kind, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [digits_run if each == "RUN" else each for each in arguments]
    error = run(*given).exception
    with pytest.raises(kind, match=message):
        raise error
    assert "\n" not in str(error)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_weights_is_one_line(run, digits_run, tmp_path):
    started = RunFolder(tmp_path / "started")
    started.write_config(RunFolder(digits_run).config())
    error = run(started.path, "--out", tmp_path / "x").exception
    with pytest.raises(DataError, match="has no final weights yet; finish it with"):
        raise error
