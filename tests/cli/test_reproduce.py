import pytest

from imae.cli.app import main
from imae.recipes import RECIPES, grid, plan_jobs

ONE = ["--set", "machine.threads=1", "--set", "machine.accelerator=cpu"]


def test_the_recipes_and_the_cells_of_one_are_listed(capsys):
    assert main(["reproduce", "--list"]) == 0
    shown = capsys.readouterr().out
    for name in ("weights", "cifar10", "t_ablation", "abnormal_examples", "cnn8"):
        assert name in shown
    assert main(["reproduce", "cifar10", "--list", "--budget", "paper"]) == 0
    shown = capsys.readouterr()
    cells = shown.out.split()
    assert cells == [cell.name for cell in RECIPES.build("cifar10").cells("paper")]
    assert "resnet56-40-imae" in cells
    assert shown.err == "next: imae reproduce cifar10 --budget paper\n"


@pytest.mark.usefixtures("quick_figures")
def test_nothing_to_train_is_written_at_once(tmp_path, capsys):
    assert main(["reproduce", "weights", "--out", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "| IMAE, T = 16 | 354.113342 | 354.113 | yes |" in captured.out
    assert "next:" not in captured.err  # there are no runs to report on
    assert (tmp_path / "weights.png").exists()


@pytest.mark.usefixtures("quick_figures")
def test_a_cell_is_run_resumed_and_its_table_rebuilt(tmp_path, capsys):
    out = ["--out", str(tmp_path), "--budget", "tiny"]
    only = ["--only", "printed"]
    assert main(["reproduce", "stability", *out, *only, *ONE]) == 0
    captured = capsys.readouterr()
    assert "printed-seed123 ended after" in captured.out
    assert f"next: imae report {tmp_path}\n" in captured.err
    table = (tmp_path / "table.md").read_bytes()
    assert main(["reproduce", "stability", *out, *only, *ONE]) == 2
    assert "add --resume to continue" in capsys.readouterr().err
    assert main(["reproduce", "stability", *out, *only, *ONE, "--resume"]) == 0
    assert "1 of 1 runs are done already" in capsys.readouterr().out
    (tmp_path / "table.md").unlink()
    assert main(["reproduce", "--rebuild", *out[:2]]) == 0
    assert (tmp_path / "table.md").read_bytes() == table


def test_a_dry_run_shows_the_runs_and_trains_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    command = ["reproduce", "stability", "--budget", "tiny", "--out", str(tmp_path / "out")]
    assert main([*command, "--only", "printed", *ONE]) == 0
    capsys.readouterr()
    assert (
        main([*command, "--only", "printed", "--only", "normalised-saturated", "--dry-run", *ONE])
        == 0
    )
    shown = capsys.readouterr().out
    assert "window_high=16.0" in shown
    assert "2 runs, 1 of them to do; about 0.0 h one after another" in shown
    assert not list((tmp_path / "out").glob("runs/normalised*"))
    other = [*command, "--only", "printed", "--dry-run", *ONE, "--set", "train.clip=3"]
    assert main(other) == 2
    assert "holds another recipe, budget or settings" in capsys.readouterr().err


def test_a_recipe_must_be_named(capsys):
    assert main(["reproduce", "--resume"]) == 2
    assert "give the name of a recipe; --list shows all" in capsys.readouterr().err
    assert main(["reproduce", "--list", "--budget", "big"]) == 2
    assert "budget must be one of" in capsys.readouterr().err


def test_defaults_are_not_taken_for_markup_in_the_help(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    wanted = {
        "reproduce": ["(short)", "(one in reproduce/)"],
        "train": ["(imae_capped)", "(one that suits the data)", "(runs/NAME-TIME)", "(ddp)"],
        "compare": ["(one that suits the data)", "(123)"],
    }
    for command, defaults in wanted.items():
        assert main([command, "--help"]) == 0
        shown = capsys.readouterr().out
        assert all(f"[default: {default}]" in shown for default in defaults)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cifra10"], "did you mean cifar10"),
        (["cifar10", "--budget", "huge"], "budget must be one of"),
        (["cifar10", "--only", "resnet"], "no such cell"),
        (["cifar10", "--seeds", "0"], "seeds must be at least 1"),
        (["cifar10", "--set", "optimizer.lr=fast"], "optimizer.lr"),
        (["cifar10", "--rebuild", "--resume"], "give --out, the folder, and no others"),
        (["cifar10", "--rebuild", "--budget", "paper"], "give --out, the folder, and no others"),
        (["cifar10", "--rebuild"], "no recipe was run here"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(arguments, message, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["reproduce", *arguments, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_a_dry_run_on_features_extracts_nothing(capsys, monkeypatch, tmp_path):
    def fail(*_):
        raise AssertionError("features were extracted")

    monkeypatch.setattr("imae.train.rows.frozen_features", fail)
    arguments = ["--budget", "features", "--only", "40-[cg]ce", "--dry-run"]
    assert main(["reproduce", "cifar10", *arguments, "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "6 runs, 6 of them to do" in shown  # two cells under three seeds
    assert not (tmp_path / "out").exists()


def test_features_are_extracted_once_before_several_runs_at_once(monkeypatch, tmp_path):
    loaded, said = [], []
    monkeypatch.setattr(grid, "load_rows", lambda config: loaded.append(config.data.name))
    jobs = plan_jobs("cifar_n", budget="features", only=["*-cce"], out=tmp_path)
    grid.extract_features(jobs, said.append)
    assert sorted(loaded) == ["cifar100n"] + ["cifar10n"] * 5
    assert len(jobs) == 3 * len(said) == 18
