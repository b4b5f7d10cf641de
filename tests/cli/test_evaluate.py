import json
import re

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from imae.cli.app import build
from imae.errors import ArgumentError, DataError
from imae.metrics.retrieval import evaluate
from imae.records import RunFolder
from imae.train import build_config, train


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    config = {
        "data": {"name": "digits", "hold_out": 0.0},
        "model": {"name": "mlp"},
        "train": {"steps": 40},
        "machine": {"accelerator": "cpu", "threads": 1},
        "out": str(tmp_path_factory.mktemp("runs") / "digits"),
    }
    return train(build_config(config)).path


@pytest.fixture
def run():
    app = build()
    return lambda *arguments: CliRunner().invoke(
        app, list(map(str, arguments)), env={"COLUMNS": "200"}
    )


def numbers(output, first):
    """The cells of the table row that begins with this text."""
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines()]
    return next(line for line in lines if line and line[0] == first)


@pytest.fixture
def arrays():
    generator = np.random.default_rng(1)
    return {
        "query_features": generator.normal(size=(6, 4)),
        "gallery_features": generator.normal(size=(9, 4)),
        "query_ids": np.array([1, 1, 2, 2, 3, 3]),
        "gallery_ids": np.array([1, 2, 3] * 3),
        "query_cameras": np.array([1, 2] * 3),
        "gallery_cameras": np.array([1] * 3 + [2] * 3 + [3] * 3),
    }


def test_a_file_of_features_is_ranked(run, arrays, tmp_path):
    np.savez(tmp_path / "features.npz", **arrays)
    result = run("eval-retrieval", tmp_path / "features.npz", "--ranks", "1,3")
    assert result.exit_code == 0, result.exception
    found = evaluate(**arrays, ranks=(1, 3))
    assert numbers(result.output, "6") == [
        "6",
        f"{100 * found.mean_average_precision:.1f}",
        f"{100 * found.cmc[1]:.1f}",
        f"{100 * found.cmc[3]:.1f}",
    ]


def test_without_cameras_no_row_is_left_out(run, arrays, tmp_path):
    del arrays["query_cameras"], arrays["gallery_cameras"]
    arrays["query_ids"][0] = 7  # nobody in the gallery
    np.savez(tmp_path / "features.npz", **arrays)
    result = run("eval-retrieval", tmp_path / "features.npz")
    assert result.exit_code == 0, result.exception
    found = evaluate(**arrays, query_cameras=[0] * 6, gallery_cameras=[1] * 9)
    assert numbers(result.output, "6")[1] == f"{100 * found.mean_average_precision:.1f}"
    assert "left out: 1 query without a match" in result.output


def test_a_page_shows_the_ranked_gallery_of_a_file_with_its_images(run, arrays, tmp_path):
    Image.new("RGB", (90, 60), (200, 30, 30)).save(tmp_path / "red.png")
    images = {"query_images": ["red.png"] * 6, "gallery_images": ["red.png"] * 9}
    np.savez(tmp_path / "features.npz", **arrays, **images)
    page = tmp_path / "page.html"
    result = run("eval-retrieval", tmp_path / "features.npz", "--page", page)
    assert result.exit_code == 0, result.exception
    text = page.read_text()
    assert re.search(r"<title>imae retrieval: features\.npz, \d{4}-\d\d-\d\d</title>", text)
    assert text.count('src="data:image/') == 6 + sum(
        (~((arrays["gallery_ids"] == who) & (arrays["gallery_cameras"] == camera))).sum()
        for who, camera in zip(arrays["query_ids"], arrays["query_cameras"], strict=True)
    )
    again = run("eval-retrieval", tmp_path / "features.npz", "--page", page)
    assert isinstance(again.exception, ArgumentError)
    assert "choose another --page, or give --overwrite" in str(again.exception)
    assert run("eval-retrieval", tmp_path / "features.npz", "--rerank").exit_code != 0


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["../secret.png"] * 6, ": ../secret.png is not below its folder"),
        (["/etc/passwd"] * 6, "is not below its folder"),
        (["no.png"] * 6, "no.png"),
        ([1] * 6, "query_images must be 6 file names"),
        (["a.png"] * 5, "query_images must be 6 file names"),
    ],
)
def test_images_that_cannot_be_shown_are_one_line(run, arrays, tmp_path, names, message):
    arrays["query_ids"][:] = arrays["gallery_ids"][:6]
    np.savez(tmp_path / "features.npz", **arrays, query_images=np.array(names))
    result = run("eval-retrieval", tmp_path / "features.npz", "--page", tmp_path / "page.html")
    assert isinstance(result.exception, DataError)
    assert message in str(result.exception)
    assert not (tmp_path / "page.html").exists()


def test_a_page_of_a_run_shows_its_test_rows(run, digits_run, tmp_path):
    page = tmp_path / "page.html"
    result = run("eval-retrieval", digits_run, "--page", page)
    assert result.exit_code == 0, result.exception
    text = page.read_text()
    assert text.count('class="query"') == 40
    assert text.count("data:image/png") >= 40 * 11
    assert "camera" not in text
    day = RunFolder(digits_run).env()["started"][:10]
    assert f"<title>imae retrieval: digits, {day}</title>" in text
    assert f"From the run {digits_run.name}, of <time>{day}</time>." in text


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"gallery_ids": None}, DataError, "has no array gallery_ids"),
        ({"gallery_cameras": None}, DataError, "has no array gallery_cameras"),
        (
            {"gallery_features": np.ones((9, 3))},
            ArgumentError,
            "features must have the same length",
        ),
        ({"gallery_features": np.full((9, 4), np.nan)}, DataError, "row 0 .* not finite"),
        ({"query_features": np.zeros((6, 4))}, DataError, "row 0 is all zeros"),
        ({"query_ids": np.arange(5)}, ArgumentError, "query_ids must be 6 integers"),
        ({"query_ids": np.array(list("abcdef"))}, ArgumentError, "query_ids must be 6 integers"),
        ({"query_ids": 3}, DataError, "query_ids must hold one number for each row"),
        ({"query_ids": np.full(6, 8)}, DataError, "no query has its identity in the gallery"),
    ],
)
def test_a_bad_file_is_one_line(run, arrays, tmp_path, change, kind, message):
    content = {name: each for name, each in (arrays | change).items() if each is not None}
    np.savez(tmp_path / "features.npz", **content)
    error = run("eval-retrieval", tmp_path / "features.npz").exception
    with pytest.raises(kind, match=rf"features\.npz: .*{message}"):
        raise error
    assert "\n" not in str(error)


def test_numbers_are_shown_before_they_cannot_be_stored(run, digits_run, monkeypatch):
    def refuse(*_):
        raise OSError(30, "Read-only file system", "retrieval.json")

    monkeypatch.setattr("imae.train.measure.store_retrieval", refuse)
    result = run("eval-retrieval", digits_run)
    assert isinstance(result.exception, OSError)
    assert "mAP" in result.output


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["eval-retrieval", "nowhere"], DataError, "no such run folder and no such file"),
        (["eval-retrieval", "RUN", "--ranks", "one"], ArgumentError, "--ranks must be numbers"),
        (["eval-retrieval", "RUN", "--ranks", "0"], ArgumentError, "ranks must be at least 1"),
        (["eval-retrieval", "RUN", "--which", "last"], ArgumentError, "which must be one of"),
        (["eval-robust", "nowhere"], DataError, "nowhere"),
        (["eval-robust", "RUN", "--epsilon", "8/0"], ArgumentError, "--epsilon must be a number"),
        (["eval-robust", "RUN", "--epsilon", "8"], ArgumentError, "between 0 and 1"),
        (["eval-robust", "RUN", "--attack", "cw"], ArgumentError, "attack must be one of"),
        (["eval-robust", "RUN", "--steps", "0"], ArgumentError, "steps must be at least 1"),
    ],
)
def test_a_mistake_is_one_line(run, digits_run, arguments, kind, message):
    error = run(*(digits_run if each == "RUN" else each for each in arguments)).exception
    with pytest.raises(kind, match=message):
        raise error
    assert "\n" not in str(error)


def test_a_file_of_another_kind_is_refused(run, tmp_path):
    (tmp_path / "features.csv").write_text("a\n")
    error = run("eval-retrieval", tmp_path / "features.csv").exception
    with pytest.raises(DataError, match=r"neither a run folder nor a \.npz file"):
        raise error


def test_a_run_is_ranked_on_its_test_rows_and_keeps_the_measures(run, digits_run):
    result = run("eval-retrieval", digits_run)
    assert result.exit_code == 0, result.exception
    stored = json.loads((digits_run / "retrieval.json").read_text())
    assert stored["queries"] == 355
    assert numbers(result.output, "355")[1] == f"{100 * stored['mean_average_precision']:.1f}"
    assert stored["cmc"]["1"] > 0.8


def test_attacks_are_shown_beside_the_clean_accuracy(run, digits_run):
    result = run("eval-robust", digits_run, "--epsilon", "32/255", "--steps", "3", "--rows", "100")
    assert result.exit_code == 0, result.exception
    clean, fgsm, pgd = (numbers(result.output, name) for name in ("none", "fgsm", "pgd, 3 steps"))
    assert clean[2] == "100"
    assert fgsm[1] == "32/255"
    assert float(pgd[3]) < float(clean[3])
    assert float(fgsm[3]) < float(clean[3])
