import pytest
import torch

from imae.errors import ArgumentError, DataError, ImaeError
from imae.models import build
from imae.records import RunFolder
from imae.train.launch import resume
from imae.train.run import Run, save_tensors


@pytest.fixture
def run(configure):
    config = configure(model={"name": "mlp", "arguments": {"hidden": 8}})
    folder = RunFolder(config.out)
    folder.write_config(config.model_dump(mode="json"))
    folder.append_history({"step": 4})
    return Run(config.out)


def test_it_reads_its_folder(run):
    assert run.history == [{"step": 4}]
    assert run.result is None
    assert run.config.model.arguments == {"hidden": 8}
    assert run.path.name == "run"


def test_the_network_comes_back_as_it_was_saved(run):
    network = build("mlp", num_classes=3, in_features=36, hidden=8, seed=9)
    content = {"num_classes": 3, "input_shape": [1, 6, 6], "network": network.state_dict()}
    save_tensors(run.path / "weights" / "best.pt", content)
    loaded = run.load_model("best")
    assert not loaded.training
    for name, tensor in network.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    with pytest.raises(DataError, match=r"final\.pt"):
        run.load_model("final")
    assert torch.equal(run.load_model().state_dict()[name], tensor), "the best by default"


def test_weights_of_another_network_are_one_line(run):
    network = build("mlp", num_classes=3, in_features=36, hidden=4)
    content = {"num_classes": 3, "input_shape": [1, 6, 6], "network": network.state_dict()}
    save_tensors(run.path / "weights" / "final.pt", content)
    with pytest.raises(
        DataError, match=r"does not match the network mlp .*size mismatch"
    ) as refused:
        run.load_model()
    assert "\n" not in str(refused.value)


def test_a_folder_by_itself_imports_no_code(run, tmp_path, monkeypatch):
    (tmp_path / "own_code.py").write_text(
        "import pathlib\n"
        "from torch import nn\n"
        f"pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
        "def build(num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(36, num_classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    content = run.folder.config()
    content["model"] = {"name": "own_code:build", "arguments": {}, "init": None}
    run.folder.write_config(content)
    network = {"module.1.weight": torch.zeros(3, 36), "module.1.bias": torch.zeros(3)}
    saved = {"num_classes": 3, "input_shape": [1, 6, 6], "network": network}
    save_tensors(run.path / "weights" / "final.pt", saved)
    refusal = "its network is code, own_code:build, .* name it too: --model own_code:build"
    with pytest.raises(DataError, match=refusal):
        Run(run.path).load_model()
    with pytest.raises(DataError, match=refusal):
        resume(run.path)
    with pytest.raises(DataError, match="its network is own_code:build, not own_code:other"):
        resume(run.path, model="own_code:other")
    assert not (tmp_path / "ran").exists()
    assert Run(run.path, model="own_code:build").load_model()(torch.zeros(2, 36)).shape == (2, 3)


def test_a_folder_without_a_run_is_one_line(tmp_path):
    with pytest.raises(DataError, match="is not a run"):
        Run(tmp_path)


def test_a_run_of_unknown_settings_is_refused(run):
    content = run.folder.config()
    content["train"]["epoch"] = 3
    run.folder.write_config(content)
    with pytest.raises(ArgumentError, match=r"config\.json: .* did you mean train\.epochs"):
        Run(run.path)


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({"num_classes": 3_000_000_000}, {}, r"\(3, 8\) in the file, \(3000000000, 8\) in the"),
        ({"input_shape": [3_000_000_000]}, {}, r"\(8, 36\) in the file, \(8, 3000000000\) in the"),
        ({}, {"hidden": 3_000_000}, r"\(8, 36\) in the file, \(3000000, 36\) in the"),
        ({}, {"hidden": 3_000_000_000}, "does not match the network mlp"),
        ({"num_classes": "three"}, {}, "does not match the network mlp"),
    ],
)
def test_no_memory_is_taken_for_a_network_larger_than_its_weights(run, change, arguments, message):
    network = build("mlp", num_classes=3, in_features=36, hidden=8)
    content = {"num_classes": 3, "input_shape": [36], "network": network.state_dict()}
    save_tensors(run.path / "weights" / "final.pt", {**content, **change})
    config = run.folder.config()
    config["model"]["arguments"].update(arguments)
    run.folder.write_config(config)
    with pytest.raises(ImaeError, match=message):
        Run(run.path).load_model("final")
