import csv

import numpy as np
import pytest
import torch
from torch import nn

from imae.errors import ArgumentError, DataError
from imae.train import Run, train, train_student
from imae.train.predict import load_network, plain_batches, predicted_classes
from imae.train.rows import load_rows, prepare


@pytest.mark.filterwarnings("ignore:.*predicts no row as")
def test_a_student_learns_the_predictions_of_the_best_epoch_for_every_row(configure, tmp_path):
    teacher = train(configure(noise="symmetric:0.4", data={"hold_out": 0.2}))
    before = {path: path.read_bytes() for path in sorted(teacher.path.glob("*.npz"))}
    student = train_student(teacher)
    assert student.path == tmp_path / "run-student"
    prepared = prepare(teacher.config, load_rows(teacher.config))
    network = load_network(teacher, "best")
    expected = {}
    for split in (prepared.train, prepared.validation):
        labels = predicted_classes(network, plain_batches(teacher, split))
        expected |= dict(zip(split.row_ids.tolist(), labels.tolist(), strict=True))
    learned = student.folder.labels()
    assert dict(zip(learned.row_ids.tolist(), learned.given.tolist(), strict=True)) == expected
    assert learned.clean is not None  # the truth stays as well known as it was
    assert student.config.noise is None
    assert student.config.method == teacher.config.method
    assert student.result["final"]["step"] > 0
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.filterwarnings("ignore:.*predicts no row as")
@pytest.mark.parametrize("noise", ["symmetric:0.4", None])
def test_a_student_does_not_choose_by_labels_that_its_teacher_had_wrong(configure, arrays, noise):
    content = dict(np.load(arrays))
    is_validation = np.arange(len(content["y"])) % 5 == 3
    split = np.where(is_validation, "validation", content["split"])
    np.savez(arrays, **{**content, "split": split})
    student = train_student(train(configure(noise=noise)))
    measured = [row["validation_accuracy"] for row in student.history]
    assert all((each is None) == (noise is not None) for each in measured)


@pytest.mark.filterwarnings("ignore:.*predicts no row as")
def test_a_student_has_the_network_that_was_given(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    network = nn.Linear(3, 2)
    before = network.weight.detach().clone()
    settings = {"train": {"epochs": 1}, "out": str(tmp_path / "run")}
    teacher = train(settings, data=(x, y), model=network)
    with pytest.raises(DataError, match="its network was given in Python"):
        train_student(teacher.path, (x, y))
    for first, model, name in ((teacher, None, "a"), (teacher.path, network, "b")):
        student = train_student(first, (x, y), model, out=tmp_path / name)
        assert student.config.model.name == "python:Linear"
        assert isinstance(student.load_model().module, nn.Linear)
    assert torch.equal(network.weight, before), "a copy is trained"


@pytest.mark.filterwarnings("ignore:.*predicts no row as")
def test_a_student_has_the_function_that_is_named_again(arrays, tmp_path, monkeypatch):
    (tmp_path / "flat.py").write_text(
        "from torch import nn\n"
        "def build(num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(36, num_classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings = {"train": {"epochs": 1}, "model": {"name": "flat:build"}}
    teacher = train({**settings, "data": {"name": str(arrays)}, "out": str(tmp_path / "run")})
    with pytest.raises(DataError, match="if you trust it, name it too: --model flat:build"):
        train_student(teacher.path)
    student = train_student(Run(teacher.path), model="flat:build")
    assert student.config.model.name == "flat:build"


def test_labels_that_a_spreadsheet_would_run_are_read_back(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3))
    y = np.array(["=1+1", 'a "quoted", name'])[np.arange(40) % 2]
    teacher = train({"train": {"epochs": 1}, "out": str(tmp_path / "first")}, data=(x, y))
    student = train_student(teacher, (x, y), out=tmp_path / "second")
    with (teacher.path / "student.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["label"] for row in rows} <= set(y)
    assert len(student.folder.labels().given) == len(rows) == 40


@pytest.mark.filterwarnings("ignore:.*predicts no row as")
def test_rows_that_were_removed_stay_removed(tmp_path):
    table, labels = tmp_path / "table.csv", tmp_path / "labels.csv"
    lines = [f"{row % 7},{'ab'[row % 2]}" for row in range(40)]
    table.write_text("\n".join(["size,label", *lines]))
    given = [f"{row},{'ab'[row % 2]},{'x' * (row == 3)}" for row in range(40)]
    labels.write_text("\n".join(["row_id,label,removed", *given]))
    settings = {"data": {"name": str(table), "labels": str(labels)}, "train": {"epochs": 1}}
    student = train_student(train({**settings, "out": str(tmp_path / "run")}))
    assert sorted(map(int, student.folder.labels().row_ids)) == [*range(3), *range(4, 40)]


def test_a_student_of_other_data_or_of_no_finished_run_is_refused(configure, arrays, tmp_path):
    teacher = train(configure())
    content = dict(np.load(arrays))
    np.savez(arrays, **{**content, "x": content["x"][::-1]})
    with pytest.raises(DataError, match="the data is not what this run was trained on"):
        train_student(teacher)
    np.savez(arrays, **content)
    (teacher.path / "weights" / "final.pt").unlink()
    with pytest.raises(DataError, match=r"final\.pt: is missing, and the run has finished"):
        train_student(teacher)
    (teacher.path / "result.json").unlink()
    with pytest.raises(DataError, match="has no final weights yet; finish it with"):
        train_student(teacher)
    assert not (tmp_path / "run-student").exists()


def test_a_student_of_a_sample_is_refused(configure):
    teacher = train(configure(data={"rows": 40}))
    with pytest.raises(ArgumentError, match="was trained on a part of the rows"):
        train_student(teacher)


def test_a_class_that_the_teacher_never_predicts_is_named(tmp_path):
    x = np.zeros((40, 3))
    y = np.array(["common", "rare"])[(np.arange(40) % 10 == 0).astype(int)]
    teacher = train({"train": {"epochs": 1}, "out": str(tmp_path / "first")}, data=(x, y))
    with pytest.warns(UserWarning, match="predicts no row as rare, so the student"):
        train_student(teacher, (x, y), out=tmp_path / "second")
