import pytest

from imae.cli import compare
from imae.cli.app import main

pytestmark = pytest.mark.usefixtures("quick_figures")
QUICK = ["--model", "mlp", "--steps", "3", "--set", "machine.threads=1", "--seeds", "1"]


def test_the_table_the_page_and_the_figures_are_made(tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["compare", "digits", "--losses", "cce,imae_stable", "--noise", "symmetric:0.4"]
    assert main([*arguments, *QUICK, "--out", str(out)]) == 0
    captured = capsys.readouterr()
    shown = captured.out
    assert captured.err.count("1442 training rows") == 1  # not once for every run
    assert "1 of 2: cce-seed123" in shown
    assert "imae_stable" in shown
    assert {"report.html", "table.md", "table.csv", "figures", "compare.json"} <= {
        path.name for path in out.iterdir()
    }
    assert "imae_stable" in (out / "table.csv").read_text()
    assert list((out / "figures").glob("*.png"))


def test_settings_come_from_a_file_too(tmp_path):
    config = tmp_path / "quick.json"
    config.write_text('{"model": {"name": "mlp"}, "train": {"steps": 2}, "seed": 9}')
    arguments = ["compare", "digits", "--losses", "cce", "--seeds", "1", "--config", str(config)]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "cce-seed9" / "result.json").exists()


def test_mistakes_are_one_line(tmp_path, capsys):
    for arguments, message in (
        (["--losses", "ccee"], "ccee"),
        (["--losses", ""], "at least one loss"),
        (["--set", "train.epoch=3"], "train.epoch"),
        (["--seeds", "0"], "seeds must be at least 1"),
    ):
        assert main(["compare", "digits", *arguments, "--out", str(tmp_path)]) == 2
        captured = capsys.readouterr().err
        assert captured.startswith("imae: ")
        assert message in captured


def test_a_loss_that_fails_takes_no_table_from_the_others(tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["compare", "digits", "--losses", "cce,l2rw", *QUICK, "--out", str(out)]
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert "wrote" in shown.out
    assert "next:" not in shown.err
    assert shown.err.splitlines()[-1].startswith("imae: 1 of 2 runs failed: l2rw-seed123: ")
    assert {"report.html", "table.md", "table.csv", "figures"} <= {p.name for p in out.iterdir()}
    assert "cce" in (out / "table.md").read_text()


@pytest.mark.parametrize(
    ("given", "is_left_out"),
    [([], True), (["--noise", "symmetric:0.4"], False), (["--set", "data.trusted=9"], False)],
)
def test_all_losses_are_those_that_the_data_allows(
    given, is_left_out, tmp_path, capsys, monkeypatch
):
    tried = []
    monkeypatch.setattr(compare, "compare_and_report", lambda _, losses, **__: tried.extend(losses))
    assert main(["compare", "digits", "--losses", "all", *given, "--out", str(tmp_path)]) == 0
    assert "cce" in tried
    assert ("l2rw" in tried) == (not is_left_out)
    line = "left out, as no true labels are known and data.trusted is not set: l2rw\n"
    assert (line == capsys.readouterr().err) == is_left_out
