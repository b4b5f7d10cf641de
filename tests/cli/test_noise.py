import numpy as np
import pytest
from typer.testing import CliRunner

from imae.cli.app import build
from imae.errors import ArgumentError
from imae.noise import read_manifest

ROWS = 3000
LABELS = np.arange(ROWS) % 3
FEATURES = np.arange(ROWS * 4, dtype=np.float32).reshape(ROWS, 4) % 7 - 3


@pytest.fixture
def run():
    app = build()

    def invoke(*arguments):
        return CliRunner().invoke(app, ["noise", *map(str, arguments)])

    return invoke


@pytest.fixture
def arrays(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, x=FEATURES, y=LABELS)
    return path


@pytest.mark.parametrize(
    "options",
    [
        ["--kind", "symmetric"],
        ["--kind", "uniform", "--exact"],
        ["--kind", "pairs", "--map", "0:1,2:0"],
        ["--kind", "instance_dependent"],
    ],
    ids=lambda options: options[1],
)
def test_the_command_writes_the_labels(run, arrays, tmp_path, options):
    out = tmp_path / "labels.csv"
    result = run(arrays, "--rate", 0.4, "--seed", 1, "--out", out, *options)
    assert result.exception is None
    manifest = read_manifest(out)
    assert (manifest.kind, manifest.rate, manifest.seed) == (options[1], 0.4, 1)
    assert np.array_equal(manifest.clean_labels, LABELS)
    changed = int((manifest.labels != LABELS).sum())
    assert changed > 0
    assert result.stdout == (
        f"{changed} of {ROWS} labels changed ({changed / ROWS:.4f}), {options[1]}:0.4, seed 1: "
        f"{out}\n"
    )


def test_the_command_is_the_same_twice(run, arrays, tmp_path):
    for name in ("first.csv", "second.csv"):
        run(arrays, "--rate", 0.4, "--seed", 1, "--out", tmp_path / name)
    assert (tmp_path / "first.csv").read_bytes() == (tmp_path / "second.csv").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rate", "1.0"], r"rate must be in \[0, 1\), got 1.0"),
        (["--rate", "-0.1"], r"rate must be in \[0, 1\), got -0.1"),
        (["--rate", "0.4", "--kind", "symetric"], "did you mean symmetric"),
        (["--rate", "0.4", "--seed", "-1"], "seed must be at least 0"),
        (
            ["--rate", "0.4", "--kind", "pairs"],
            r"needs a map FROM:TO,FROM:TO of classes \(--set noise_map=.*, or imae noise --map\)",
        ),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(run, arrays, tmp_path, options, message):
    out = tmp_path / "labels.csv"
    error = run(arrays, "--out", out, *options).exception
    assert isinstance(error, ArgumentError)
    with pytest.raises(ArgumentError, match=message):
        raise error
    assert "\n" not in str(error)
    assert not out.exists()


def test_the_data_are_not_overwritten_by_their_labels(run, tmp_path):
    own = tmp_path / "own.csv"
    own.write_text("label,x\na,1\nb,2\n")
    with pytest.raises(ArgumentError, match=r"own\.csv: is the data itself"):
        raise run(own, "--rate", "0.4", "--out", own).exception
    assert own.read_text() == "label,x\na,1\nb,2\n"


def test_labels_are_written_as_csv_only(run, arrays, tmp_path):
    result = run(arrays, "--rate", 0.4, "--out", tmp_path / "labels.parquet")
    assert isinstance(result.exception, ArgumentError)
    assert "the extension of --out must be one of .csv, got '.parquet'" in str(result.exception)
    assert not (tmp_path / "labels.parquet").exists()
