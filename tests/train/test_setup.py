import numpy as np
import pytest
import torch

from imae.errors import ArgumentError, DataError
from imae.train.config import MachineConfig
from imae.train.display import QuietDisplay
from imae.train.loop import train_step
from imae.train.machine import build_fabric, sum_dtype
from imae.train.processes import StopRequest
from imae.train.setup import build_network, setup


@pytest.fixture
def fabric(configure):
    return build_fabric(configure().machine)


def test_nothing_is_written(configure, fabric, tmp_path):
    before = set(tmp_path.rglob("*"))
    state = setup(configure(), fabric, QuietDisplay())
    assert set(tmp_path.rglob("*")) == before
    assert state.total_steps == 15
    assert state.steps_per_epoch == 5
    assert state.step == 0
    assert state.config.model.name == "small_cnn"
    assert state.method.facts.num_epochs == 3
    assert state.method.facts.predict().shape == (65, 3)


def test_steps_replace_epochs(configure, fabric):
    state = setup(configure(train={"epochs": None, "steps": 7}), fabric, QuietDisplay())
    assert state.total_steps == 7
    assert state.method.facts.num_epochs == 2


def test_start_weights_follow_from_the_seed_or_a_file(configure, fabric, tmp_path, capsys):
    first = setup(configure(), fabric, QuietDisplay())
    again = build_network(first.config, first.prepared.train, seed=5)
    other = build_network(first.config, first.prepared.train, seed=6)
    assert torch.equal(first.network.fc.weight, again.fc.weight)
    assert not torch.equal(first.network.fc.weight, other.fc.weight)
    torch.save(other.state_dict(), tmp_path / "start.pth")
    loaded = setup(configure(model={"init": str(tmp_path / "start.pth")}), fabric, QuietDisplay())
    assert torch.equal(loaded.network.fc.weight, other.fc.weight)
    assert "tensors loaded" in capsys.readouterr().err
    with pytest.raises(DataError, match="No such file"):
        setup(configure(model={"init": str(tmp_path / "none.pth")}), fabric, QuietDisplay())


def test_channels_last_is_a_layout(configure, fabric):
    state = setup(configure(machine={"channels_last": True}), fabric, QuietDisplay())
    weight = state.network.body[3].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)


def test_a_machine_without_the_device_is_one_line():
    with pytest.raises(ArgumentError, match="machine: ") as raised:
        build_fabric(MachineConfig(accelerator="nonsense"))
    assert "\n" not in str(raised.value)


def test_a_batch_of_one_row_is_refused_before_it_comes_where_it_cannot_be_normalised(
    configure, fabric, tmp_path
):
    rows = np.zeros((41, 32, 32, 3), np.uint8)
    rows[::2] = 200
    np.savez(tmp_path / "colour.npz", x=rows, y=np.arange(41) % 2)
    data = {"name": str(tmp_path / "colour.npz"), "hold_out": 0.0}

    def build(**settings):
        return setup(configure(data=data, **settings), fabric, QuietDisplay())

    before = torch.get_rng_state()
    with pytest.raises(ArgumentError, match=r"single row .* set train.drop_last=true"):
        build(model={"name": "cnn8"}, train={"batch_size": 20})
    assert torch.equal(torch.get_rng_state(), before)
    assert build(model={"name": "cnn8"}, train={"batch_size": 20, "drop_last": True})
    assert build(model={"name": "cnn8"}, train={"batch_size": 39})
    state = build(model={"name": "resnet20"}, train={"batch_size": 20})
    assert int(state.network.get_buffer("bn1.num_batches_tracked")) == 0  # tried on a copy


def test_losses_are_summed_in_double_precision_where_there_is_any():
    assert sum_dtype(torch.device("cpu")) == torch.float64
    assert sum_dtype(torch.device("mps")) == torch.float32


def test_a_second_network_is_not_the_first_of_another_run(configure, fabric):
    method = {"name": "co_teaching"}
    one = setup(configure(method=method, seed=1), fabric, QuietDisplay()).learner.networks
    two = setup(configure(method=method, seed=2), fabric, QuietDisplay()).learner.networks
    weights = [next(network.parameters()) for network in (*one, *two)]
    for number, weight in enumerate(weights):
        assert not any(torch.equal(weight, other) for other in weights[number + 1 :])


def test_small_work_is_done_by_one_thread(configure, fabric, monkeypatch):
    torch.set_num_threads(2)
    config = configure(machine={"threads": None})
    assert setup(config, fabric, QuietDisplay()).config.machine.threads == 1
    monkeypatch.setattr("imae.train.machine.SMALL_WORK", 0)
    assert setup(config, fabric, QuietDisplay()).config.machine.threads == 2


def test_large_convolutions_on_a_processor_use_the_faster_format(configure, fabric, monkeypatch):
    monkeypatch.setattr("imae.train.machine.has_bfloat16", lambda: True)
    assert setup(configure(), fabric, QuietDisplay()).config.machine.precision == "32-true"
    monkeypatch.setattr("imae.train.machine._LARGE_WORK", 0)
    state = setup(configure(), fabric, QuietDisplay())
    machine = state.config.machine
    assert (machine.precision, machine.channels_last, machine.compile) == (
        "bf16-mixed",
        True,
        False,
    )
    train_step(state, next(iter(state.batches.epoch(0))), StopRequest())
    assert state.learner.logits.dtype == torch.bfloat16
    asked = {"precision": "32-true", "channels_last": False, "compile": False}
    kept = setup(configure(machine=asked), fabric, QuietDisplay()).config.machine
    assert kept.model_dump(include=set(asked)) == asked
    table = setup(configure(model={"name": "mlp"}), fabric, QuietDisplay()).config.machine
    assert (table.precision, table.channels_last) == ("32-true", False)
    monkeypatch.setattr("imae.train.machine.has_bfloat16", lambda: False)
    old = setup(configure(), fabric, QuietDisplay()).config.machine
    assert (old.precision, old.channels_last) == ("32-true", True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_only_long_runs_are_compiled(configure, fabric, monkeypatch):
    monkeypatch.setattr("imae.train.machine.has_bfloat16", lambda: True)
    monkeypatch.setattr("imae.train.machine._LARGE_WORK", 0)
    monkeypatch.setattr("imae.train.machine._LONG_WORK", 0)
    monkeypatch.setattr("imae.train.machine.shutil.which", lambda _: None)
    assert not setup(configure(), fabric, QuietDisplay()).config.machine.compile
    monkeypatch.setattr(
        "imae.train.machine.shutil.which", lambda name: name if name == "g++" else None
    )
    assert setup(configure(), fabric, QuietDisplay()).config.machine.compile


def test_paths_are_stored_as_absolute_ones(configure, fabric, arrays, monkeypatch):
    monkeypatch.chdir(arrays.parent)
    state = setup(configure(data={"name": arrays.name}), fabric, QuietDisplay())
    assert state.config.data.name == str(arrays)
    state = setup(configure(data={"name": "digits", "options": {}}), fabric, QuietDisplay())
    assert state.config.data.name == "digits"


def test_threads_that_would_end_the_process_are_refused(configure, fabric):
    config = configure(machine={"threads": 1_000_000_000})
    with pytest.raises(ArgumentError, match=r"machine\.threads: 1000000000 is more than \d+, the"):
        setup(config, fabric, QuietDisplay())
