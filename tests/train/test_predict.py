import csv
import shutil

import numpy as np
import pytest
import torch

from imae.data import load
from imae.errors import ArgumentError, DataError, ImaeError
from imae.models import build
from imae.records import RunFolder
from imae.train import Run, build_config, train
from imae.train.predict import (
    Predictions,
    check_output,
    load_network,
    predict,
    save_predictions,
    write_bytes,
)
from imae.train.run import load_tensors, save_tensors


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    return train(
        build_config(
            {
                "data": {"name": "digits"},
                "noise": "symmetric:0.2",
                "model": {"name": "small_cnn"},
                "train": {"steps": 3},
                "machine": {"accelerator": "cpu", "threads": 1},
                "out": str(tmp_path_factory.mktemp("runs") / "digits"),
            }
        )
    )


@pytest.fixture
def table_run(tmp_path):
    """A run on a table whose columns differ a thousandfold, so that their order matters."""
    clean = np.arange(60) % 3
    lines = [f"{7000 + 500 * c + i},{c / 10},{'abc'[c]}" for i, c in enumerate(clean)]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["income,share,label", *lines, ""]))
    config = {
        "data": {"name": str(path), "hold_out": 0.2},
        "train": {"steps": 3, "batch_size": 16},
        "machine": {"accelerator": "cpu", "threads": 1},
        "out": str(tmp_path / "run"),
    }
    return train(build_config(config))


@pytest.fixture
def odd():
    """Predictions whose names need quotes."""
    return Predictions(
        row_ids=np.array(["a,b", 'say "x"', "two\nlines", "cr\rhere", "é"]),
        labels=np.array([0, 1, 0, 1, 0]),
        probabilities=np.array([[0.7, 0.3], [0.1, 0.9], [1, 0], [1e-9, 1], [2 / 3, 1 / 3]], "f4"),
        class_names=("cat, big", "dog"),
    )


@pytest.mark.parametrize("which", ["final", "best"])
def test_the_test_rows_get_the_accuracy_that_the_run_measured(digits_run, which):
    predictions = predict(digits_run, "digits", which=which)
    test = load("digits").test
    assert predictions.row_ids.tolist() == test.row_ids.tolist()
    measured = digits_run.result[which]["test_accuracy"]
    assert (predictions.labels == test.labels).mean() == pytest.approx(measured)


def test_what_comes_back(digits_run):
    seen = []
    predictions = predict(
        digits_run.path, "digits", progress=lambda done, total: seen.append((done, total))
    )
    assert len(predictions) == 355
    assert predictions.labels.dtype == np.int64
    assert predictions.probabilities.dtype == np.float32
    assert predictions.probabilities.shape == (355, 10)
    np.testing.assert_allclose(predictions.probabilities.sum(1), 1, rtol=1e-5)
    assert predictions.labels.tolist() == predictions.probabilities.argmax(1).tolist()
    assert predictions.class_names == tuple("0123456789")
    assert seen == [(256, 355), (355, 355)]


def test_the_probabilities_are_those_of_the_network(digits_run, tmp_path):
    test = load("digits").test
    np.save(tmp_path / "new.npy", test.inputs.pixels[:7])
    predictions = predict(digits_run, tmp_path / "new.npy")
    with torch.no_grad():
        logits = digits_run.load_model()(test.inputs.batch(np.arange(7), generator=None))
    np.testing.assert_allclose(predictions.probabilities, logits.softmax(1).numpy(), rtol=1e-5)


def test_new_rows_of_a_table_are_scaled_by_the_training_rows(table_run, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("share,row_id,income\n0.2,x,8000\n")  # another order, and other statistics
    training = np.loadtxt(table_run.config.data.name, delimiter=",", skiprows=1, usecols=(0, 1))
    training = training[table_run.folder.labels().row_ids.astype(int)]  # held-out rows do not count
    row = (np.array([8000, 0.2]) - training.mean(0)) / training.std(0)
    with torch.no_grad():
        logits = table_run.load_model()(torch.tensor(row[None], dtype=torch.float32))
    predictions = predict(table_run, new)
    assert predictions.row_ids.tolist() == ["x"]
    np.testing.assert_allclose(predictions.probabilities, logits.softmax(1).numpy(), rtol=1e-4)


def test_features_of_a_frozen_network(configure, arrays, monkeypatch, tmp_path):
    with np.load(arrays) as loaded:
        content = dict(loaded)
    content["x"] = np.repeat(content["x"][:, None], 3, axis=1).repeat(6, 2).repeat(6, 3)
    np.savez(arrays, **content)
    weights = tmp_path / "lite0.pth"
    torch.save(build("efficientnet_lite0", num_classes=1000, seed=1).state_dict(), weights)
    monkeypatch.setenv("IMAE_DATA", str(tmp_path))
    monkeypatch.setattr("imae.train.preparation.pretrained_weights", lambda _: weights)
    run = train(
        configure(
            data={"features": "efficientnet_lite0"}, model={"name": "mlp"}, train={"epochs": 1}
        )
    )
    is_test = content["split"] == "test"
    np.savez(tmp_path / "new.npz", images=content["x"][is_test])
    arrays.unlink()
    shutil.rmtree(tmp_path / "features")
    predictions = predict(run, tmp_path / "new.npz")
    hits = predictions.labels == content["clean_labels"][is_test]
    assert hits.mean() == pytest.approx(run.result["final"]["test_accuracy"])


def test_csv_is_quoted_and_keeps_every_digit(odd, tmp_path):
    save_predictions(odd, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["row_id", "predicted", "probability", "p(cat, big)", "p(dog)"]
    assert [row[0] for row in rows] == odd.row_ids.tolist()
    assert [row[1] for row in rows] == ["cat, big", "dog", "cat, big", "dog", "cat, big"]
    numbers = np.array([row[2:] for row in rows], dtype=np.float32)
    assert numbers[:, 0].tolist() == odd.probabilities.max(1).tolist()
    assert numbers[:, 1:].tolist() == odd.probabilities.tolist()


def test_parquet_holds_the_same(odd, tmp_path):
    import pyarrow.parquet

    save_predictions(odd, tmp_path / "out.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["row_id", "predicted", "probability", "p(cat, big)", "p(dog)"]
    assert table["row_id"].to_pylist() == odd.row_ids.tolist()
    assert table["predicted"].to_pylist() == ["cat, big", "dog", "cat, big", "dog", "cat, big"]
    assert str(table.schema.field("p(dog)").type) == "float"
    assert table["p(dog)"].to_numpy().tolist() == odd.probabilities[:, 1].tolist()


def test_a_file_that_cannot_be_written(odd, tmp_path):
    with pytest.raises(ArgumentError, match=r"must end in \.csv or \.parquet, got 'out\.txt'"):
        save_predictions(odd, "out.txt")
    assert check_output(tmp_path / "OUT.CSV").name == "OUT.CSV"
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ImaeError, match=r"folder\.csv: cannot be written \(Is a directory\)"):
        save_predictions(odd, tmp_path / "folder.csv")
    (tmp_path / "file").write_text("")
    with pytest.raises(ImaeError, match=r"x: cannot be written"):
        write_bytes(tmp_path / "file" / "x", b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.csv"]


def test_predictions_are_not_overwritten_unasked(odd, tmp_path):
    save_predictions(odd, tmp_path / "new.csv")
    before = (tmp_path / "new.csv").read_bytes()
    (tmp_path / "new.csv").write_text("mine")
    with pytest.raises(ArgumentError, match="exists already"):
        save_predictions(odd, tmp_path / "new.csv")
    save_predictions(odd, tmp_path / "new.csv", overwrite=True)
    assert (tmp_path / "new.csv").read_bytes() == before


def test_the_best_weights_are_used_by_default(configure):
    run = train(configure(train={"epochs": 2}))
    final = load_tensors(run.path / "weights" / "final.pt")
    final["network"] = {key: torch.zeros_like(value) for key, value in final["network"].items()}
    save_tensors(run.path / "weights" / "final.pt", final)
    rows = np.zeros((3, 6, 6), np.uint8)
    best = predict(run, rows, which="best").probabilities
    np.testing.assert_array_equal(predict(run, rows).probabilities, best)
    assert (predict(run, rows, which="final").probabilities != best).any()


@pytest.mark.parametrize("method", ["elr", "s_adaptation"])
def test_a_cap_holds_for_methods_that_are_not_curves(configure, method):
    arguments = {"cap": 0.6} | ({"variant": "complex"} if method == "s_adaptation" else {})
    run = train(configure(method={"name": method, "arguments": arguments}, train={"epochs": 2}))
    rows = np.random.default_rng(0).integers(0, 256, (20, 6, 6)).astype(np.uint8)
    largest = predict(run, rows).probabilities.max()
    assert 1 / 3 < largest <= 0.6 + 1e-6


@pytest.mark.parametrize(
    "damage",
    [
        {"input_shape": [1, 7, 7]},
        {"input_shape": None},
        {"class_names": 3},
        {"preparation": []},
        {"preparation": {"kind": "images", "mean": "a", "std": [1.0]}},
        {"preparation": {"kind": "tensors", "shape": [10**9, 10**9, 10**9]}},
        {"class_names": ["only one"]},
    ],
)
def test_a_damaged_preparation_is_one_line(trained, damage):
    trained.folder.write_preparation({**trained.folder.preparation(), **damage})
    with pytest.raises(DataError, match=r"is damaged|its classes are not those of labels"):
        predict(trained, np.zeros((3, 6, 6), np.uint8))


def test_no_run_and_a_run_without_weights(digits_run, tmp_path):
    with pytest.raises(DataError, match="nowhere is not a run"):
        predict(tmp_path / "nowhere", "digits")
    started = RunFolder(tmp_path / "started")
    started.write_config(digits_run.folder.config())
    with pytest.raises(DataError, match="has no final weights yet; finish it with: imae train"):
        load_network(Run(started.path), "final")
    started.write_result(digits_run.result)
    with pytest.raises(DataError, match=r"final\.pt: is missing, and the run has finished; put"):
        load_network(Run(started.path), "final")
    (started.path / "weights").mkdir()
    for name in ("final.pt", "final.json"):
        shutil.copy(digits_run.path / "weights" / name, started.path / "weights" / name)
    assert not load_network(Run(started.path), "final").training
    with pytest.raises(DataError, match="has no best weights, as no rows were held out"):
        load_network(Run(started.path), "best")
    with pytest.raises(ArgumentError, match="which must be one of final, best"):
        load_network(Run(started.path), "last")
    with pytest.raises(DataError, match=r"preparation\.json: there is no such file, as in runs of"):
        predict(started.path, "digits")


def test_a_run_folder_is_enough(table_run, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("income,share\n7000,0.1\n")
    expected = predict(table_run, new)
    moved = tmp_path / "elsewhere"
    shutil.move(table_run.path, moved)
    (tmp_path / "people.csv").unlink()
    found = predict(moved, new)
    assert found.probabilities.tolist() == expected.probabilities.tolist()
    assert found.class_names == ("a", "b", "c")


def test_rows_that_do_not_fit(digits_run, table_run, tmp_path):
    np.save(tmp_path / "new.npy", np.zeros((2, 9, 9), np.uint8))
    with pytest.raises(DataError, match=r"\(1, 9, 9\); .* trained on images of shape \(1, 8, 8\)"):
        predict(digits_run, tmp_path / "new.npy")
    new = tmp_path / "new.csv"
    new.write_text("row_id,income,share\nfine,7000,0.1\nhuge,7000,2e37\n")
    with pytest.raises(DataError, match="row 'huge' has scores that are not finite"):
        predict(table_run, new)
