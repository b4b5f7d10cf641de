import pytest

from imae.recipes.tables.weights import cells, finish, variances


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
    assert len(paths) == 11
    assert b"logits z" in (tmp_path / "pipeline.svg").read_bytes()
