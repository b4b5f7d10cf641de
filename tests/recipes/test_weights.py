import pytest

from imae.curves import CCE, MAE
from imae.recipes.tables.weights import cells, finish, gradients, printed, variances


@pytest.mark.parametrize("name", list(variances()))
def test_the_variance_is_the_papers_to_the_printed_digits(name):
    ours, paper, digits = variances()[name]
    assert round(ours, digits) == paper


def test_nothing_is_trained_and_the_table_and_figures_are_written(tmp_path):
    assert cells("paper") == ()
    paths = finish(tmp_path, ())
    text = (tmp_path / "variances.md").read_text()
    assert text.count("| yes |") == 9
    assert "NO" not in text
    assert "which does not exist" in text
    assert len(paths) == 12
    summary = (tmp_path / "summary.md").read_text()
    assert summary.count("| yes |") == 15
    assert "NO" not in summary
    assert b"logits z" in (tmp_path / "pipeline.svg").read_bytes()


def test_a_wrong_formula_would_be_seen():
    assert printed("mae", 0.1) == pytest.approx(gradients(MAE(), 0.1))
    assert printed("mae", 0.1) != pytest.approx(gradients(CCE(), 0.1))
