"""Rows and networks that are given in Python instead of named in the settings."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_circles, make_moons
from torch import nn
from torch.utils.data import TensorDataset

from imae import IMAELoss
from imae.curves import IMAE, Window
from imae.data import load
from imae.data.loading import as_data, load_unscaled
from imae.errors import ArgumentError, DataError
from imae.methods.catalog import METHODS
from imae.train import Run, build_config, resume, train, train_student
from imae.train.display import QuietDisplay
from imae.train.machine import build_fabric
from imae.train.predict import predict
from imae.train.setup import setup

SETTINGS = {"train": {"epochs": 2, "batch_size": 16}, "machine": {"threads": 1}}


def rows(number=80):
    generator = np.random.Generator(np.random.PCG64(1))
    labels = np.arange(number) % 2
    return generator.normal(size=(number, 4)) + 4 * labels[:, None], labels


def settings(tmp_path, **sections):
    return {**SETTINGS, "out": str(tmp_path / "run"), **sections}


def test_two_classes_do_not_end_as_one(tmp_path):
    """A hard cap froze every row on one side under this seed: one direction cannot turn."""
    generator = np.random.Generator(np.random.PCG64(0))
    labels = generator.integers(0, 2, 1200)
    features = generator.normal(size=(1200, 2)) + 4 * np.stack([labels, 0 * labels], 1)
    asked = settings(tmp_path, seed=2, train={"epochs": 10})
    run = train(asked, data=(features.astype(np.float32), labels), loss="imae_capped")
    accuracy = (predict(run, features.astype(np.float32)).labels == labels).mean()
    assert accuracy > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("make", [make_moons, make_circles], ids=["moons", "circles"])
def test_easy_tables_of_two_classes_are_learned(make, seed, tmp_path):
    options = {"noise": 0.15} if make is make_moons else {"noise": 0.08, "factor": 0.5}
    features, labels = make(500, random_state=seed, **options)
    features = features.astype(np.float32)
    run = train({"seed": seed, "out": str(tmp_path / "run")}, data=(features, labels))
    assert run.config.train.clip == 1
    assert (predict(run, features).labels == labels).mean() > 0.95


def test_arrays_are_trained_on_and_predicted(tmp_path):
    features, labels = rows()
    run = train(settings(tmp_path), data=(features, labels))
    assert run.config.data.from_python
    found = predict(run, features[:6])
    assert found.labels.tolist() == labels[:6].tolist()
    assert found.row_ids.tolist() == list("012345")
    with pytest.raises(DataError, match=r"of shape \(3,\); the network was trained on features"):
        predict(run, features[:6, :3])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_are_trained_on_and_predicted(library, tmp_path):
    frames = pytest.importorskip(library)
    features, labels = rows()
    columns = {f"x{k}": features[:, k] for k in range(4)}
    frame = frames.DataFrame({**columns, "label": np.where(labels, "yes", "no").tolist()})
    run = train(settings(tmp_path), data=frame, loss="gce")
    assert run.config.method.name == "gce"
    found = predict(run, frames.DataFrame(columns))
    assert [found.class_names[k] for k in found.labels[:4]] == ["no", "yes", "no", "yes"]
    with pytest.raises(DataError, match="frame: has no column label or labels"):
        train(settings(tmp_path), data=frames.DataFrame(columns))


TABLE = """age,colour,member,since,note,kind
31,red,True,2024-05-17,,good
,blue,False,2021-01-02,x,bad
18,green,True,,,good
47,red,,2020-12-31,,bad
"""


def table(library, path):
    """A frame of words, dates, booleans and empty cells, and the CSV file that it was read from."""
    frames = pytest.importorskip(library)
    head, *lines = TABLE.splitlines()
    path.write_text("\n".join([head, *lines * 10]) + "\n")
    if library == "polars":
        frame = frames.read_csv(path, try_parse_dates=True)
        assert frame["member"].dtype == frames.Boolean
        return frame
    return frames.read_csv(path, parse_dates=["since"], dtype={"member": "boolean"})


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_and_its_file_give_the_same_run(library, tmp_path):
    frame = table(library, tmp_path / "people.csv")
    asked = {**SETTINGS, "data": {"options": {"label_column": "kind", "drop": "note"}}}
    of_frame = train({**asked, "out": str(tmp_path / "a")}, data=frame)
    of_file = train({**asked, "out": str(tmp_path / "b")}, data=tmp_path / "people.csv")
    stored = [run.folder.preparation() for run in (of_frame, of_file)]
    assert len(stored[0]["preparation"]["mean"]) == 9  # three colours, and pairs for the others
    assert stored[0]["input_shape"] == stored[1]["input_shape"]
    assert stored[0]["content"]["train"] == stored[1]["content"]["train"], "the same cells"
    assert stored[0]["preparation"] == stored[1]["preparation"]
    found = [predict(run, frame) for run in (of_frame, of_file)]
    np.testing.assert_array_equal(found[0].probabilities, found[1].probabilities)
    of_pair = train(
        {**SETTINGS, "out": str(tmp_path / "c")},
        data=(frame[["age", "colour", "member", "since"]], frame["kind"]),
    )
    again = predict(of_pair, frame[["since", "member", "age", "colour"]])
    np.testing.assert_array_equal(again.probabilities, found[0].probabilities)


def test_arrays_are_not_taken_for_the_features_of_a_table(tmp_path):
    frame = table("polars", tmp_path / "people.csv").drop("note")
    asked = settings(tmp_path, data={"options": {"label_column": "kind"}})
    run = train(asked, data=frame)
    with pytest.raises(DataError, match=r"numbers without names; .*columns 'age', 'colour', 'memb"):
        predict(run, np.zeros((3, 9)))  # as many as there are features
    student = train_student(run, frame, out=tmp_path / "student")
    assert student.config.data.options == {"label_column": "kind"}


def test_lists_and_frames_are_taken_where_a_data_set_was_trained_on(tmp_path):
    features, labels = rows()
    inputs = torch.tensor(features, dtype=torch.float32)
    run = train(settings(tmp_path), data=TensorDataset(inputs, torch.tensor(labels)))
    expected = predict(run, inputs).probabilities
    polars = pytest.importorskip("polars")
    for same in (inputs.tolist(), polars.DataFrame(inputs.numpy()), list(inputs.numpy())):
        np.testing.assert_array_equal(predict(run, same).probabilities, expected)
    unlabelled = TensorDataset(inputs)
    np.testing.assert_array_equal(predict(run, unlabelled).probabilities, expected)


def test_a_bool_frame_is_read_as_its_file(tmp_path):
    frames = pytest.importorskip("pandas")
    features, labels = rows()
    frame = frames.DataFrame({"x": features[:, 0], "b": labels > 0, "label": labels > 0})
    frame.to_csv(tmp_path / "b.csv", index=False)
    one, two = as_data(frame), load_unscaled(tmp_path / "b.csv")[0]
    assert one.train.inputs.content_hash() == two.train.inputs.content_hash()
    assert one.class_names == two.class_names == ("False", "True")
    assert one.notes == two.notes
    assert one.columns == two.columns


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (lambda y: 2 * y - 1, np.int64),
        (lambda y: y == 1, np.bool_),
        (lambda y: np.where(y == 1, "yes", "no"), np.str_),
        (lambda y: np.where(y == 1, "7", "5"), np.str_),
    ],
    ids=["-1 and 1", "booleans", "names", "numbers as texts"],
)
def test_predictions_come_back_as_the_labels_were(labels, kind, tmp_path):
    features, numbers = rows()
    given = labels(numbers)
    run = train(settings(tmp_path), data=(features, given))
    found = predict(run, features).predicted
    assert isinstance(found[0], kind)
    np.testing.assert_array_equal(found, given)


def test_images_in_memory_are_prepared_as_those_in_a_file(tmp_path):
    generator = np.random.Generator(np.random.PCG64(1))
    images = generator.integers(0, 60, (40, 8, 8), np.uint8)
    labels = np.arange(40) % 2
    np.savez(tmp_path / "tiles.npz", x=images, y=labels)
    asked = {**SETTINGS, "model": {"name": "mlp"}}
    runs = [
        train({**asked, "out": str(tmp_path / name)}, data=data)
        for name, data in (("a", (images, labels)), ("b", tmp_path / "tiles.npz"))
    ]
    one, two = (run.folder.preparation()["preparation"] for run in runs)
    assert one == two
    assert 0.05 < one["mean"][0] < 0.15, "the mean of the images, not a unit"


def test_texts_are_trained_on_and_predicted(tmp_path):
    texts = ["a good film", "a bad film", "good one", "bad one"] * 10
    run = train(settings(tmp_path, train={"epochs": 20}), data=(texts, ["yes", "no"] * 20))
    assert predict(run, ["good", "bad"]).predicted.tolist() == ["yes", "no"]
    assert predict(run, np.array(["good"])).predicted.tolist() == ["yes"]


def test_settings_may_hold_paths(tmp_path):
    run = train({**SETTINGS, "out": tmp_path / "run"}, data=rows())
    assert run.path == tmp_path / "run"
    config = build_config({"data": {"name": tmp_path / "x.csv", "root": tmp_path}})
    assert (config.data.name, config.data.root) == (str(tmp_path / "x.csv"), str(tmp_path))


@pytest.mark.parametrize("number", [np.int64(4), np.float32(4), torch.tensor(4.0)])
def test_settings_may_hold_numbers_of_numpy_and_torch(number, tmp_path):
    method = {"name": "imae", "arguments": {"T": number}}
    run = train(settings(tmp_path, method=method, seed=np.int64(1)), data=rows())
    assert Run(run.path).config.method.arguments["T"] == 4
    again = train({**SETTINGS, "out": tmp_path / "b"}, data=rows(), loss=IMAE(T=np.float32(4)))
    assert again.config.method.arguments == {"T": 4}


def test_a_loss_is_a_name_or_a_curve(tmp_path):
    run = train(settings(tmp_path), data=rows(), loss=IMAE(T=4.0))
    assert (run.config.method.name, run.config.method.arguments) == ("imae", {"T": 4.0})
    with pytest.raises(
        ArgumentError, match="cannot be combined with settings of the section method"
    ):
        train({"method": {"name": "gce"}}, data=rows(), loss="cce")


@pytest.mark.parametrize("loss", [IMAELoss(T=4), IMAE, 3, Window(IMAE(T=4.0), low=-4.0, high=4.0)])
def test_what_is_neither_is_one_line(loss):
    with pytest.raises(ArgumentError, match=f"loss must be .*, got {type(loss).__name__}"):
        train({}, data=rows(), loss=loss)


def test_a_data_set_of_torch_and_a_module_are_trained(tmp_path):
    features, labels = rows()
    inputs = torch.tensor(features, dtype=torch.float32)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    before = [each.detach().clone() for each in network.parameters()]
    dataset = TensorDataset(inputs, torch.tensor(labels))
    run = train(settings(tmp_path), data=dataset, model=network)
    assert all(map(torch.equal, network.parameters(), before)), "a copy is trained"
    assert run.config.model.name == "python:Sequential"
    with torch.no_grad():
        expected = run.load_model()(inputs[:5]).softmax(1)
    np.testing.assert_allclose(predict(run, dataset).probabilities[:5], expected, rtol=1e-5)
    np.testing.assert_allclose(predict(run, inputs[:5]).probabilities, expected, rtol=1e-5)
    with pytest.raises(DataError, match=r"was given in Python; give one like it again"):
        Run(run.path).load_model()
    assert Run(run.path, model=network).load_model().training is False


def test_data_of_the_library_is_trained_on(tmp_path):
    run = train(settings(tmp_path, model={"name": "mlp"}), data=load("digits"))
    assert run.config.data.name == "digits"
    assert run.history[-1]["test_accuracy"] is not None


def test_a_resume_asks_for_the_data_again_and_compares_it(tmp_path, monkeypatch):
    features, labels = rows()

    def fail(*_):
        raise RuntimeError("no more memory")

    with monkeypatch.context() as patched:
        patched.setattr("imae.train.journal.Journal.finish", fail)
        with pytest.raises(RuntimeError):
            train(settings(tmp_path), data=(features, labels))
    folder = tmp_path / "run"
    with pytest.raises(ArgumentError, match=r"given in Python; give it again: imae.train.resume"):
        resume(folder)
    with pytest.raises(DataError, match="the train part differs"):
        resume(folder, data=(features[:, ::-1].copy(), labels))
    assert resume(folder, data=(features, labels)).result is not None


def test_the_method_is_built_once_a_run(tmp_path, monkeypatch):
    config = build_config({**settings(tmp_path), "data": {"name": "digits"}})
    built = []
    build = METHODS.build
    monkeypatch.setattr(METHODS, "build", lambda *a, **b: built.append(a) or build(*a, **b))
    setup(config, build_fabric(config.machine), QuietDisplay())
    assert built == [("imae_capped",)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: train({}), "data: must be given, such as data.name=digits"),
        (
            lambda: train("digits"),
            "settings are a mapping such as .*, got 'digits'; rows are given",
        ),
        (
            lambda: train(rows()),
            "settings are a mapping such as .*, got tuple; rows are given as d",
        ),
        (lambda: build_config("digits"), "settings are a mapping such as"),
        (lambda: train({}, data=3), "data must be an imae.data.Data"),
        (lambda: train({}, data=np.eye(3)), "data must be an imae.data.Data"),
        (lambda: train({"data": 3}, data=rows()), "data: "),
        (
            lambda: train({"data": {"root": "x"}}, data=rows()),
            "data.root is for data that is loaded",
        ),
        (lambda: train({}, data=rows(), model="mlp"), "model must be a torch.nn.Module"),
        (
            lambda: train({"model": {"name": "mlp"}}, data=rows(), model=nn.Linear(4, 2)),
            "cannot be combined with settings of the section model",
        ),
        (lambda: train({}, data=rows(), model=nn.Linear(4, 3)), r"outputs of shape \(1, 3\)"),
        (
            lambda: train({"method": {"name": "co_teaching"}}, data=rows(), model=nn.Linear(4, 2)),
            "co_teaching trains 2 networks",
        ),
    ],
)
def test_wrong_calls_are_one_clear_line(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match=message):
        call()


class Twice(nn.Module):
    """Returns two tensors."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x), x


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(9, 2), r"model: fails on one row, of shape \(1, 4\): RuntimeError: "),
        (Twice(), "model: must return logits as one tensor, returns tuple"),
        (nn.Linear(4, 3), r"model: returns outputs of shape \(1, 3\) for one row; the data has 2"),
        (nn.Identity(), "model: has no parameters to train"),
        (nn.Linear(4, 2).requires_grad_(False), "model: has no parameters to train"),
    ],
)
def test_a_network_that_cannot_be_trained_is_one_line(tmp_path, model, message):
    with pytest.raises(ArgumentError, match=message):
        train(settings(tmp_path), data=rows(), model=model)
    assert not (tmp_path / "run").exists()


def test_a_function_that_builds_such_a_network_is_one_line_too(tmp_path, monkeypatch):
    (tmp_path / "narrow.py").write_text(
        "from torch import nn\ndef build(num_classes):\n    return nn.Linear(9, num_classes)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ArgumentError, match="model: fails on one row"):
        train(settings(tmp_path, model={"name": "narrow:build"}), data=rows())


def test_what_is_not_a_path_or_rows_is_one_line(tmp_path):
    with pytest.raises(ArgumentError, match="a run folder is given by its path, got None"):
        Run(None)
    with pytest.raises(
        ArgumentError, match=r"data is given by its name or path or as .*, got None"
    ):
        load(None)
    run = train(settings(tmp_path), data=rows())
    with pytest.raises(ArgumentError, match="rows must be an array, a data frame or a map-style"):
        predict(run, {"a": 1})
    with pytest.raises(ArgumentError, match=r"data must be an imae.data.Data, .* got dict"):
        train(settings(tmp_path), data={"a": [1]})
