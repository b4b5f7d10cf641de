"""Whole runs: what they give, how they end, and that an interrupted one ends the same."""

import contextlib
import datetime
import json
import multiprocessing
import resource
import runpy
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from imae.errors import ArgumentError, DataError, ImaeError
from imae.records import RunFolder
from imae.train import Run, Stopped, journal, resume, train
from imae.train.journal import Journal
from imae.train.launch import default_folder
from imae.train.processes import fresh_context
from imae.train.rows import prepare
from imae.train.run import list_checkpoints, load_checkpoint, load_tensors

CONTEXT = fresh_context()  # that of the runs in several processes: it is started once
MOMENTS = ("created", "half written", "not synced", "not renamed", "renamed")
LONG = {"epochs": 12, "batch_size": 8, "checkpoint_every": 3, "evaluate_every": 4, "average": 0.9}


def trace(path):
    """Everything of a run that must come out the same, bit for bit."""
    folder = RunFolder(path)
    history = [{**row, "seconds": None} for row in folder.history()]
    dynamics = [
        tuple(array.tobytes() for array in vars(folder.dynamics(epoch)).values())
        for epoch in folder.epochs()
    ]
    content = load_tensors(list_checkpoints(folder.checkpoints)[-1])
    for name in ("seconds", "step_seconds"):
        content.pop(name)
    return history, dynamics, repr(_hashable(content))


def _hashable(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, dict):
        return [(key, _hashable(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [_hashable(each) for each in value]
    return value


def kill_at(seconds, config):
    """Trains or resumes in a separate process, and kills it at a given moment."""
    folder = RunFolder(config.out)
    target, argument = (resume, config.out) if folder.exists() else (train, config)
    process = CONTEXT.Process(target=target, args=(argument,))
    process.start()
    process.join(timeout=seconds)
    process.kill()
    process.join()
    return process.exitcode


def finish(config):
    return resume(config.out) if RunFolder(config.out).exists() else train(config)


def test_a_run_writes_everything_down(configure):
    run = train(configure(log=["csv", "tensorboard"]))
    folder = run.folder
    assert [row["step"] for row in run.history] == [5, 10, 15]
    final = run.result["final"]
    assert final["step"] == run.result["steps"] == 15
    assert final["epoch"] == 3
    for name in ("test", "validation", "noisy", "clean", "corrected", "hybrid"):
        assert 0 <= final[f"{name}_accuracy"] <= 1
    assert final["test_accuracy"] > 0.6
    assert folder.progress()["status"] == "finished"
    assert folder.env()["threads"] == 1
    assert folder.config()["method"]["name"] == "imae_capped"
    assert folder.config()["model"]["name"] == "small_cnn"
    assert folder.epochs() == [1, 2, 3]
    assert len((run.path / "history.csv").read_text().splitlines()) == 4
    assert list((run.path / "tensorboard").iterdir())
    labels = folder.labels()
    dynamics = folder.dynamics(3)
    assert len(labels.given) == len(labels.row_ids) == len(dynamics.margin) == 65
    assert np.isfinite(dynamics.margin).all()
    assert np.isfinite(dynamics.weight).all()
    assert dynamics.weight.mean() == pytest.approx(1, abs=0.35)  # the bound takes a part away
    assert set(dynamics.predicted) <= {0, 1, 2}
    (folder.path / "config.json").read_text().index('"noise": null')


def test_the_network_of_a_run_can_be_loaded(configure):
    run = train(configure())
    network = run.load_model("final")
    assert not network.training
    test = prepare(run.config).test
    logits = network(test.inputs.batch(np.arange(len(test)), generator=None))
    accuracy = (logits.argmax(1).numpy() == test.labels).mean()
    assert accuracy == pytest.approx(run.result["final"]["test_accuracy"])
    best = load_tensors(run.path / "weights" / "best.pt")
    assert best["step"] == run.result["best"]["step"]
    assert run.load_model("best").state_dict().keys() == network.state_dict().keys()
    with pytest.raises(ArgumentError, match="which must be one of final, best"):
        run.load_model("last")
    assert repr(run) == f"Run({str(run.path)!r})"
    assert Run(run.path).config == run.config


def test_the_same_seed_gives_the_same_bits_and_another_others(configure, tmp_path):
    one, two, three = (
        train(configure(out=str(tmp_path / name), seed=seed))
        for name, seed in (("one", 5), ("two", 5), ("three", 6))
    )
    assert trace(one.path) == trace(two.path)
    assert trace(one.path) != trace(three.path)


def test_global_generators_and_threads_are_unchanged(configure):
    state = torch.get_rng_state()
    torch.set_num_threads(2)
    train(configure(train={"epochs": None, "steps": 2}))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == 2


def test_deterministic_mode_works(configure):
    torch.use_deterministic_algorithms(True)
    try:
        train(configure(train={"epochs": None, "steps": 2, "average": 0.9, "clip": 1.0}))
    finally:
        torch.use_deterministic_algorithms(False)


def test_steps_can_end_within_an_epoch(configure):
    run = train(configure(train={"epochs": None, "steps": 7}))
    assert [row["step"] for row in run.history] == [5, 7]
    last = run.folder.dynamics(2)
    assert int((last.predicted >= 0).sum()) == 32  # two batches of the second epoch
    assert np.array_equal(np.isnan(last.margin), last.predicted < 0)
    expected = trace(run.path)
    (run.path / "result.json").unlink()  # as if killed just before the end
    assert trace(resume(run.path).path) == expected
    assert run.result["steps"] == 7


def test_killed_at_random_moments_it_ends_the_same(configure, tmp_path):
    check_kills(configure, tmp_path, kills=3, chains=1)


@pytest.mark.slow
def test_killed_at_forty_random_moments_it_ends_the_same(configure, tmp_path):
    check_kills(configure, tmp_path, kills=1, chains=40)


@pytest.mark.slow
def test_killed_with_temporary_files_on_another_disk_it_ends_the_same(
    configure, tmp_path, monkeypatch
):
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to put temporary files on")
    monkeypatch.setenv("TMPDIR", str(other))
    before = set(other.iterdir())
    check_kills(configure, tmp_path, kills=3, chains=10)
    assert set(other.iterdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".pt", ".json"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_inside_a_save_it_ends_the_same(configure, tmp_path, moment, suffix):
    check_death_in_save(configure, tmp_path, moment, suffix, number=4)


def test_killed_in_the_middle_of_writing_it_ends_the_same(configure, tmp_path):
    check_death_in_save(configure, tmp_path, "half written", ".pt", number=2)


def check_death_in_save(configure, tmp_path, moment, suffix, *, number):
    settings = {"epochs": 3, "checkpoint_every": 2}
    expected = trace(train(configure(train=settings, out=str(tmp_path / "whole"))).path)
    config = configure(train=settings)
    given = {"CONFIG": config, "MOMENT": moment, "SUFFIX": suffix, "NUMBER": number}
    script = str(Path(__file__).with_name("die_in_save.py"))
    process = CONTEXT.Process(target=runpy.run_path, args=(script, given, "__main__"))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    folder = RunFolder(config.out)
    saved = load_checkpoint(folder.checkpoints, lambda _: None)["step"]
    assert saved == 2 * (number if (moment, suffix) == ("renamed", ".json") else number - 1)
    assert len(list(folder.checkpoints.glob(".*.tmp"))) == (moment != "renamed")
    assert trace(resume(config.out).path) == expected


def check_kills(configure, tmp_path, *, kills, chains):
    warm = CONTEXT.Process(target=train, args=(configure(out=str(tmp_path / "warm")),))
    warm.start()
    warm.join()
    whole = configure(train=LONG, out=str(tmp_path / "whole"))
    began = time.perf_counter()
    process = CONTEXT.Process(target=train, args=(whole,))
    process.start()
    process.join()
    longest = 0.7 * (time.perf_counter() - began)
    assert process.exitcode == 0
    expected = trace(whole.out)
    draws = np.random.default_rng(0)
    for chain in range(chains):
        landed = 0
        config = configure(train=LONG, out=str(tmp_path / f"killed-{chain}"))
        while landed < kills:
            if kill_at(draws.uniform(0.05, 1) * longest, config) == -signal.SIGKILL:
                landed += 1
            else:  # it had finished before: again, and sooner
                longest *= 0.9
                landed = 0
                config = configure(train=LONG, out=f"{config.out}-again")
        finish(config)
        assert trace(config.out) == expected


def test_quick_epochs_are_not_saved_and_a_killed_run_ends_the_same(
    configure, tmp_path, monkeypatch
):
    monkeypatch.setattr(journal, "_SECONDS_BETWEEN_CHECKPOINTS", 1000.0)
    whole = train(configure(out=str(tmp_path / "whole")))
    assert len(list_checkpoints(whole.folder.checkpoints)) == 1
    expected = trace(whole.path)
    real, epochs = Journal.evaluation, []

    def evaluation(self, state, held):
        real(self, state, held)
        epochs.append(state.step)
        if len(epochs) == 2:
            raise KeyboardInterrupt  # as if killed: nothing is saved

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "evaluation", evaluation)
        with pytest.raises(KeyboardInterrupt):
            train(configure())
    folder = RunFolder(configure().out)
    assert (len(folder.history()), list_checkpoints(folder.checkpoints)) == (2, [])
    assert trace(resume(folder.path).path) == expected


def test_what_was_measured_is_on_the_disk_before_a_checkpoint(configure, monkeypatch):
    order = []
    save, sync = journal.save_checkpoint, RunFolder.sync
    monkeypatch.setattr(RunFolder, "sync", lambda self: order.append("sync") or sync(self))
    monkeypatch.setattr(
        journal, "save_checkpoint", lambda *a, **b: order.append("save") or save(*a, **b)
    )
    train(configure(train={"epochs": 2}))
    assert order == ["sync", "save"] * 2


def test_every_checkpoint_that_is_kept_leads_to_the_same_end(configure, tmp_path):
    run = train(configure(train={"epochs": 3, "checkpoint_every": 4, "keep": 3, "average": 0.9}))
    expected = trace(run.path)
    steps = []
    for path in list_checkpoints(run.folder.checkpoints):
        copy = shutil.copytree(run.path, tmp_path / path.stem)
        (copy / "result.json").unlink()
        for later in list_checkpoints(copy / "checkpoints"):
            if later.name > path.name:
                later.unlink()
        steps.append(load_checkpoint(copy / "checkpoints", pytest.fail)["step"])
        assert trace(resume(copy).path) == expected
    assert steps == [8, 12, 15]


def test_a_run_of_an_earlier_format_is_resumed(arrays, tmp_path, monkeypatch):
    """Each fixture is a run that was stopped half way, in the format that it is named after."""
    assert arrays.parent == tmp_path
    monkeypatch.chdir(tmp_path)
    for version in sorted((Path(__file__).parent / "fixtures").glob("run-*")):
        shutil.copytree(version, tmp_path / version.name)
        content = load_checkpoint(tmp_path / version.name / "checkpoints", pytest.fail)
        assert content["step"] == 4
        run = resume(version.name)
        assert [row["step"] for row in run.history] == [2, 4, 6, 8]
        assert run.result["final"]["test_accuracy"] > 0.5
        assert run.folder.epochs() == [1, 2, 3, 4]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, if this process may make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(made, capture_output=True).returncode:
        pytest.skip("no file system can be made here")
    yield folder
    while folder.is_mount():
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder):
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"0" * 512)


def freeze(folder):
    """Puts the folder over itself, read-only: files that are open stay as they are."""
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)


def explode(folder):  # noqa: ARG001
    raise RuntimeError("a fault in the program")


HARM = {
    "SIGINT": (lambda _: signal.raise_signal(signal.SIGINT), Stopped, "stopped after step"),
    "SIGTERM": (lambda _: signal.raise_signal(signal.SIGTERM), Stopped, "stopped after step"),
    "exception": (explode, RuntimeError, "a fault in the program"),
    "full disk": (fill, ImaeError, r"cannot be written \(No space left on device\); .* --resume"),
    "read-only disk": (
        freeze,
        ImaeError,
        r"cannot be written \(Read-only file system\); .* --resume",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", [2, 5, 8, 11])
@pytest.mark.parametrize("harm", HARM)
def test_whatever_happens_the_checkpoint_before_is_whole(configure, small_disk, step, harm):
    act, error, message = HARM[harm]
    settings = {"epochs": 3, "checkpoint_every": 2}
    expected = trace(train(configure(train=settings)).path)
    config = configure(train=settings, out=str(small_disk / "run"))
    advanced = Journal.advanced

    def harmed(self, state):
        advanced(self, state)
        if state.step == step:
            act(small_disk)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Journal, "advanced", harmed)
        with pytest.raises(error, match=message) as raised:
            train(config)
    if error is Stopped:
        assert raised.value.code == {"SIGINT": 130, "SIGTERM": 143}[harm]
    if error is not RuntimeError:
        assert "\n" not in str(raised.value)
    saved = load_checkpoint(RunFolder(config.out).checkpoints, pytest.fail)["step"]
    assert saved == (step + 1 if error is Stopped else step - step % 2)
    if harm == "read-only disk":
        subprocess.run(["umount", str(small_disk)], check=True)
    (small_disk / "filler").unlink(missing_ok=True)
    assert trace(resume(config.out).path) == expected


def test_a_fault_in_the_program_is_written_down(configure, monkeypatch):
    config = configure()
    monkeypatch.setattr(Journal, "advanced", lambda *_: explode(None))
    with pytest.raises(RuntimeError, match="a fault in the program"):
        train(config)
    progress = RunFolder(config.out).progress()
    assert progress["status"] == "failed"
    assert progress["message"] == "RuntimeError: a fault in the program"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_leaves(configure, tmp_path, monkeypatch, number, code):
    expected = trace(train(configure(out=str(tmp_path / "whole"))).path)
    advanced = Journal.advanced

    def interrupted(self, state):
        advanced(self, state)
        if state.step == 7:
            signal.raise_signal(number)

    config = configure()
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "advanced", interrupted)
        with pytest.raises(
            Stopped, match=r"stopped after step 8; continue with: imae train --resume"
        ):
            train(config)
        assert RunFolder(config.out).progress()["status"] == "stopped"
    assert load_tensors(list_checkpoints(RunFolder(config.out).checkpoints)[-1])["step"] == 8
    assert trace(resume(config.out).path) == expected
    with pytest.raises(Stopped) as stopped:
        raise Stopped("stopped", code)
    assert stopped.value.code == code
    assert signal.getsignal(number) not in (None, Journal)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(configure, tmp_path, capfd):
    expected = trace(train(configure(out=str(tmp_path / "whole"))).path)
    config = configure()
    run = train(config)
    (run.path / "result.json").unlink()
    newest = list_checkpoints(run.folder.checkpoints)[-1]
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    newest.write_bytes(damaged)
    assert trace(resume(run.path).path) == expected
    assert "is damaged, its checksum differs; trying the checkpoint before" in (
        capfd.readouterr().err
    )


def test_a_finished_run_is_unchanged_and_not_overwritten(configure):
    run = train(configure(train={"epochs": 1}))
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    assert resume(run.path).result == run.result
    with pytest.raises(ArgumentError, match=r"holds a run already; continue .* --out$"):
        train(configure(train={"epochs": 1}))
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_a_run_that_trained_nothing_can_be_removed(configure, tmp_path):
    config = configure(train={"epochs": 1}, out=tmp_path / "my run")
    RunFolder(config.out).write_config(config.model_dump(mode="json"))
    with pytest.raises(ArgumentError, match=r"--resume '.*/my run', .* \(nothing is trained in it"):
        train(config)


def test_resume_needs_a_run(tmp_path):
    with pytest.raises(DataError, match="is not a run"):
        resume(tmp_path / "nothing")


def test_resume_refuses_other_data(configure, arrays):
    run = train(configure(train={"epochs": 1}))
    (run.path / "result.json").unlink()
    with np.load(arrays) as loaded:
        content = dict(loaded)
    content["y"][0] = (content["y"][0] + 1) % 3
    np.savez(arrays, **content)
    with pytest.raises(DataError, match="the data is not what this run was started on"):
        resume(run.path)


def test_a_folder_in_use_is_refused(configure):
    config = configure()
    with (
        RunFolder(config.out).lock(),
        pytest.raises(ImaeError, match="another process is training in this folder"),
    ):
        train(config)


def test_a_folder_that_cannot_be_written_is_one_line(configure, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ImaeError, match="cannot be written") as raised:
        train(configure(out=str(tmp_path / "file" / "run")))
    assert "\n" not in str(raised.value)


def test_a_full_disk_loses_nothing(configure, tmp_path):
    expected = trace(train(configure(out=str(tmp_path / "whole"))).path)
    config = configure()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    original = Journal.checkpoint

    def full(self, state):
        if state.step == 10:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        original(self, state)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Journal, "checkpoint", full)
        try:
            with pytest.raises(ImaeError, match=r"cannot be written \(File too large\)"):
                train(config)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    progress = RunFolder(config.out).progress()
    assert progress["status"] == "failed"
    assert "File too large" in progress["message"]
    assert trace(resume(config.out).path) == expected
    assert not list(RunFolder(config.out).checkpoints.glob(".*"))


def test_a_batch_larger_than_the_data_is_refused(configure):
    with pytest.raises(ArgumentError, match="66 is more than the 65 rows to train on"):
        train(configure(train={"batch_size": 66}))
    assert train(configure(train={"batch_size": 65, "epochs": 1})).result["steps"] == 1


def test_a_loss_that_is_not_finite_ends_the_run(configure):
    config = configure(optimizer={"lr": 1e29}, method={"name": "cce"})
    with pytest.raises(ImaeError, match=r"loss is not finite after .* smaller optimizer\.lr"):
        train(config)
    assert RunFolder(config.out).progress()["status"] == "failed"


def test_growing_logits_are_said_once(configure, capfd):
    train(configure(optimizer={"lr": 30.0}, method={"name": "imae"}, schedule={"name": "constant"}))
    said = capfd.readouterr().err
    assert said.count("logits have grown beyond 10000") == 1
    assert "bound=5" in said


# That fsdp ends as one process does is held by the resumed run below.
@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_two_processes_do_what_one_does(configure, tmp_path, strategy):
    settings = {
        "model": {"name": "mlp", "arguments": {"hidden": 16}},
        "optimizer": {"name": "sgd", "lr": 1.0, "weight_decay": 0.0},
        "schedule": {"name": "constant"},
        "data": {"augment": True, "hold_out": 0.0},
        # 72 rows in batches of 17: the shares of the ranks are not all of one size
        "train": {"epochs": 2, "batch_size": 17, "checkpoint_every": 1, "keep": 100},
    }
    one = train(configure(**settings, out=str(tmp_path / "one")))
    machine = {"devices": 2, "strategy": strategy}
    two = train(configure(**settings, machine=machine, out=str(tmp_path / "two")))
    first = [
        load_tensors(list_checkpoints(run.folder.checkpoints)[0])["networks"] for run in (one, two)
    ]
    for name, tensor in first[0].items():  # after one step of rate 1: the gradients
        torch.testing.assert_close(first[1][name], tensor, rtol=0, atol=1e-6)
    for epoch in (1, 2):
        ours, theirs = one.folder.dynamics(epoch), two.folder.dynamics(epoch)
        assert np.isfinite(theirs.margin).all()
        np.testing.assert_allclose(theirs.margin, ours.margin, atol=1e-3)
        np.testing.assert_allclose(theirs.weight, ours.weight, atol=1e-3)
    rows = ("step", "test_accuracy", "clean_accuracy", "noisy_accuracy")
    for ours, theirs in zip(one.history, two.history, strict=True):
        assert [ours[name] for name in rows] == [theirs[name] for name in rows]
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], abs=1e-4)
    assert one.load_model().state_dict().keys() == two.load_model("final").state_dict().keys()


def test_ranks_share_the_batches_of_one_process_and_end_bit_for_bit_alike(configure, tmp_path):
    settings = {"model": {"name": "small_cnn"}, "train": {"batch_size": 17}}
    alone, *pair = (tmp_path / f"{name}.npz" for name in ("alone", "first", "second"))
    run_ranks(configure(**settings), [alone])
    run_ranks(configure(**settings, machine={"devices": 2}), pair)
    whole, first, second = map(read_rank, (alone, *pair))
    for batch, one, other in zip(whole[0], first[0], second[0], strict=True):
        assert [*one, *other] == batch.tolist()
    assert first[1].tobytes() == second[1].tobytes()


def read_rank(path):
    """The rows of every step, and the weights at the end."""
    with np.load(path) as found:
        return np.split(found["rows"], np.cumsum(found["sizes"])[:-1]), found["weights"]


def run_ranks(config, outs):
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = str(Path(__file__).with_name("one_rank.py"))
    given = {"CONFIG": config, "NUMBER": len(outs), "PORT": port}
    processes = [
        CONTEXT.Process(
            target=runpy.run_path,
            args=(script, {**given, "RANK": rank, "OUT": str(out)}, "__main__"),
        )
        for rank, out in enumerate(outs)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(outs)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((2, "fsdp"), (1, "ddp")),
        pytest.param((1, "ddp"), (2, "fsdp"), marks=pytest.mark.slow),
    ],
)
def test_a_run_is_resumed_with_other_processes_and_another_strategy(
    configure, tmp_path, before, after
):
    def machine(devices, strategy):
        return {"machine": {"devices": devices, "strategy": strategy}}

    settings = {
        "model": {"name": "mlp", "arguments": {"hidden": 16}},
        "method": {"name": "co_teaching"},
        "train": {"epochs": 4, "batch_size": 17, "average": 0.9, "clip": 1.0},
    }
    whole = train(configure(**settings, out=str(tmp_path / "whole")))
    run = train(configure(**settings, **machine(*before)))
    last, _ = list_checkpoints(run.folder.checkpoints)[::-1]
    for path in (last, last.with_suffix(".json"), run.path / "result.json"):
        path.unlink()
    config = run.folder.config()
    config["machine"] |= machine(*after)["machine"]
    run.folder.write_config(config)
    resumed = resume(run.path)
    expected, found = (load_tensors(each.path / "weights/final.pt") for each in (whole, resumed))
    for name, tensor in expected["network"].items():
        torch.testing.assert_close(found["network"][name], tensor, rtol=1e-4, atol=1e-5)
    assert load_tensors(last)["num_ranks"] == after[0]
    assert resumed.folder.epochs() == [1, 2, 3, 4]


def test_methods_that_work_on_weights_need_them_whole(configure):
    with pytest.raises(ArgumentError, match=r"d2l works on the weights .* use ddp"):
        train(
            configure(
                method={"name": "d2l"},
                train={"batch_size": 13},
                machine={"devices": 2, "strategy": "fsdp"},
            )
        )


def test_a_process_that_dies_ends_the_run_with_a_line(configure, tmp_path):
    pair = {
        "model": {"name": "mlp"},
        "machine": {"devices": 2},
        "train": {"epochs": 20, "batch_size": 13, "checkpoint_every": 7},
    }
    expected = trace(train(configure(**pair, out=str(tmp_path / "whole"))).path)
    config = configure(**pair)
    said = []

    def work():
        try:
            train(config)
        except ImaeError as error:
            said.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    folder = RunFolder(config.out)
    while not list_checkpoints(folder.checkpoints) and thread.is_alive():
        thread.join(0.02)
    max(multiprocessing.active_children(), key=lambda each: each.pid).kill()
    thread.join(60)
    assert not thread.is_alive()
    assert len(said) == 1
    assert f"continue with: imae train --resume {config.out}" in said[0]
    assert "\n" not in said[0]
    assert trace(resume(config.out).path) == expected


def test_the_default_folder_is_named_after_data_and_method(configure):
    name = default_folder(configure(data={"name": "a b/my photos!"}))
    assert name.startswith("runs/my-photos-imae_capped-")


def test_runs_of_one_second_have_folders_of_their_own(configure, tmp_path, monkeypatch):
    class Noon(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 1, 1, 12, tzinfo=tz)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("imae.train.launch.datetime.datetime", Noon)
    config = configure(data={"name": "digits"})
    names = []
    for _ in range(3):
        names.append(default_folder(config))
        (tmp_path / names[-1]).mkdir(parents=True)
    assert [name.removeprefix(names[0]) for name in names] == ["", "-2", "-3"]


def test_history_is_plain_json(configure):
    run = train(configure(data={"hold_out": 0.0}, train={"epochs": 1, "measure_train": False}))
    row = json.loads((run.path / "history.jsonl").read_text())
    assert row["validation_accuracy"] is None
    assert row["noisy_accuracy"] is None
    assert row["hybrid_accuracy"] is None
    assert run.result["best"] == run.result["best_test"]
