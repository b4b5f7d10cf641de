import numpy as np
import pytest

from imae.cli.app import main


@pytest.fixture
def rows(tmp_path):
    generator = np.random.Generator(np.random.PCG64(1))
    y = np.arange(60) % 3
    np.savez(tmp_path / "rows.npz", x=generator.normal(size=(60, 4)) + y[:, None], y=y)
    return tmp_path / "rows.npz"


def tune(rows, *options):
    command = ["tune", str(rows), "--epochs", "2", "--model", "linear"]
    return main([*command, "--out", str(rows.parent / "search"), *options])


def test_a_search_prints_its_trials_and_the_command_that_trains(rows, capsys):
    assert tune(rows, "--trials", "2") == 0
    shown = capsys.readouterr()
    assert [line.split(":")[1] for line in shown.err.splitlines()] == [" trial 0", " trial 1"]
    assert shown.out.splitlines()[-1].startswith(f"imae train {rows} --model linear")
    assert "held-out given labels, standard error" in shown.out
    assert "held-out labels" not in shown.out
    assert "\nwith at most " in shown.out  # every label that is not predicted may be wrong
    assert tune(rows, "--trials", "2") == 0  # nothing is left to do, and it says the same
    assert capsys.readouterr().out == shown.out


def test_noise_that_was_added_is_known(rows, capsys):
    assert tune(rows, "--trials", "1", "--noise", "symmetric:0.2") == 0
    assert "\nwith 20% wrong labels, differences show at 0.70 of their" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["load_rows", "open_study", "Objective.__call__"])
def test_ctrl_c_says_that_the_same_command_continues(rows, capsys, monkeypatch, place):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(f"imae.tune.search.{place}", interrupt)
        assert tune(rows, "--trials", "1") == 130
    error = capsys.readouterr().err
    assert error.startswith("imae: stopped")
    assert error.endswith("; the same command continues\n")
    assert tune(rows, "--trials", "1") == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--trials", "0"], "trials must be at least 1, got 0"),
        (["--minutes", "0"], "minutes must be in (0, inf), got 0.0"),
        (["--lr", "0.1"], "--lr must be a range such as 0.005:0.2, got '0.1'"),
        (["--clean-validation", "no_such.csv"], "no_such.csv"),
        (["--storage", "postgresql://ann:secret@127.0.0.1:1/x"], "cannot be used"),
        (["--losses", "nosuch"], "nosuch"),
        (["--set", "out=there"], "--set out: the runs of a search are in its own folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(rows, capsys, options, said):
    assert tune(rows, *options) == 2
    error = capsys.readouterr().err
    assert error.startswith("imae: ")
    assert said in error
    assert error.count("\n") == 1
    assert "secret" not in error
