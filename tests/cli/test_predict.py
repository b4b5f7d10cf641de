import csv
import re

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from imae.cli.app import build
from imae.errors import ArgumentError, DataError, ImaeError
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
        return CliRunner().invoke(app, ["predict", *map(str, arguments)], env={"COLUMNS": "200"})

    return invoke


def test_predictions_are_written_and_counted(run, digits_run, tmp_path):
    out = tmp_path / "new" / "predictions.csv"
    result = run(digits_run, "digits", "--out", out, "--which", "best")
    assert result.exit_code == 0, result.exception
    assert result.output.startswith("355 rows: ")
    assert f"wrote {out}" in result.output
    assert result.stderr == f"next: imae export {digits_run} --which best --out model.onnx\n"
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 355
    assert list(rows[0])[:4] == ["row_id", "predicted", "probability", "p(0)"]


def test_rows_without_labels_to_parquet(run, digits_run, tmp_path):
    import pyarrow.parquet

    np.savez(tmp_path / "new.npz", images=np.zeros((3, 8, 8), np.uint8), row_ids=list("abc"))
    out = tmp_path / "predictions.parquet"
    result = run(digits_run, tmp_path / "new.npz", "--out", out)
    assert result.exit_code == 0, result.exception
    assert re.match(r"3 rows: 3 as \d\nwrote ", result.output)  # three times the same image
    assert result.stderr == f"next: imae export {digits_run} --out model.onnx\n"
    assert pyarrow.parquet.read_table(out)["row_id"].to_pylist() == ["a", "b", "c"]


def test_images_that_cannot_be_read_are_left_out_if_asked(run, digits_run, tmp_path):
    folder, out = tmp_path / "new", tmp_path / "predictions.csv"
    folder.mkdir()
    for name in "ab":
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / f"{name}.png")
    (folder / "bad.png").write_bytes(b"no image")
    result = run(digits_run, folder, "--out", out)
    assert isinstance(result.exception, DataError)
    assert "bad.png: cannot be read as an image" in str(result.exception)
    assert str(result.exception).endswith("--on-bad-image skip")
    result = run(digits_run, folder, "--out", out, "--on-bad-image", "skip")
    assert result.exit_code == 0, result.exception
    assert "1 images cannot be read and are skipped; the first: " in result.stderr
    with out.open(newline="") as file:
        assert [row["row_id"] for row in csv.DictReader(file)] == ["a.png", "b.png"]
    wrong = run(digits_run, folder, "--on-bad-image", "ignore", "--out", tmp_path / "o.csv")
    assert "on_bad_image must be one of fail, skip" in str(wrong.exception)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["nowhere", "digits"], DataError, "nowhere is not a run"),
        (["RUN", "digitz"], DataError, "did you mean digits"),
        (["RUN", "digits", "--out", "x.txt"], ArgumentError, r"must end in \.csv or \.parquet"),
        (["nowhere", "digits", "--out", "x.txt"], ArgumentError, r"must end in \.csv"),
        (["RUN", "digits", "--which", "last"], ArgumentError, "which must be one of final, best"),
        (["RUN", "digits", "--out", "/dev/null/x.csv"], ImaeError, "cannot be written"),
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


def test_a_file_that_exists_is_replaced_on_request_only(run, digits_run, tmp_path):
    out = tmp_path / "new.csv"
    out.write_text("mine")
    refused = run(digits_run, "digits", "--out", out)
    assert "exists already; choose another --out, or give --overwrite" in str(refused.exception)
    assert out.read_text() == "mine"
    assert run(digits_run, "digits", "--out", out, "--overwrite").exit_code == 0
    assert out.read_text() != "mine"


def test_the_data_are_not_overwritten_by_their_predictions(run, digits_run, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("path\nx.png\n")
    with pytest.raises(ArgumentError, match=r"rows\.csv: is the data itself"):
        raise run(digits_run, rows, "--out", rows).exception
    assert rows.read_text() == "path\nx.png\n"
