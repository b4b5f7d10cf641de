import pytest

from imae.records import RunFolder
from imae.train import train
from imae.train.display import QuietDisplay
from imae.train.journal import Journal, summary
from imae.train.machine import build_fabric
from imae.train.run import load_tensors
from imae.train.setup import setup


def rows(*pairs):
    return [
        {"step": step, "test_accuracy": test, "validation_accuracy": held}
        for step, (test, held) in enumerate(pairs, start=1)
    ]


@pytest.mark.parametrize(
    ("history", "best", "best_test"),
    [
        (rows((0.9, 0.4), (0.8, 0.6), (0.7, 0.5)), 2, 1),
        (rows((0.9, 0.5), (0.9, 0.5), (0.9, 0.4)), 2, 1),
        (rows((0.3, None), (0.4, None), (0.2, None)), 3, 2),
        (rows((None, None), (None, None)), 2, None),
    ],
)
def test_best_and_final_are_kept_apart(history, best, best_test):
    found = summary(history)
    assert found["best"]["step"] == best
    assert (found["best_test"] or {"step": None})["step"] == best_test
    assert found["final"]["step"] == len(history)


def test_the_best_row_is_of_the_early_stop_unless_rows_are_held_out():
    assert summary(rows((0.4, None), (0.3, None)), best_step=1)["best"]["step"] == 1
    assert summary(rows((0.3, 0.4), (0.4, 0.5)), best_step=1)["best"]["step"] == 2


def test_a_run_is_written_down_before_its_first_step(configure):
    config = configure()
    state = setup(config, build_fabric(config.machine), QuietDisplay())
    folder = RunFolder(config.out)
    journal = Journal(folder, QuietDisplay())
    journal.begin(state, is_resumed=False)
    assert folder.config()["train"]["batch_size"] == 16
    assert folder.progress() | {"seconds": 0} == {
        "step": 0,
        "total_steps": 15,
        "seconds": 0,
        "status": "running",
        "message": "",
    }
    assert folder.labels().given.tolist() == state.prepared.train.labels.tolist()
    journal.failed(state, "why")
    assert folder.progress()["message"] == "why"
    journal.close()


def test_long_epochs_show_their_progress(configure, monkeypatch):
    config = configure()
    state = setup(config, build_fabric(config.machine), QuietDisplay())
    journal = Journal(RunFolder(config.out), QuietDisplay())
    journal.begin(state, is_resumed=False)
    state.step = 3
    journal.advanced(state)
    assert RunFolder(config.out).progress()["step"] == 0
    monkeypatch.setattr("imae.train.journal._SECONDS_BETWEEN_PROGRESS", 0.0)
    journal.advanced(state)
    assert RunFolder(config.out).progress()["step"] == 3


def test_the_best_of_a_run_in_two_stages_is_of_the_second(configure):
    run = train(
        configure(
            method={"name": "forward", "arguments": {"matrix": "estimate", "warm_up": 0.5}},
            model={"name": "mlp", "arguments": {"hidden": 8}},
            train={"epochs": 4},
        )
    )
    border = 2 * 5
    assert run.result["best"]["step"] > border
    assert run.result["best_test"]["step"] > border
    saved = load_tensors(run.path / "weights" / "best.pt")
    assert saved["step"] == run.result["best"]["step"]
