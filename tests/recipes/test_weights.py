import pytest

from imae.curves import CCE, IMAE, MAE
from imae.recipes.tables.paper_figures import finish_weights as finish
from imae.recipes.tables.paper_figures import gradients, printed, variances
from imae.recipes.tables.paper_figures import weight_cells as cells


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
    assert summary.startswith(
        "| Loss | p_y | dL/dp_y | dL/dp_j | dp_y/dz_y | dp_y/dz_j | dL/dz_y |"
    )
    assert b"logits z" in (tmp_path / "pipeline.svg").read_bytes()


@pytest.mark.parametrize(("name", "curve"), [("cce", CCE()), ("mae", MAE()), ("imae-8", IMAE())])
def test_every_cell_of_the_summary_is_what_autograd_gives(name, curve):
    found, paper = gradients(curve, 0.3), printed(name, 0.3)
    assert len(found) == len(paper) == 8
    assert found == pytest.approx(paper, rel=1e-9)
    by_p, by_other_p, own, cross, by_label, by_other, by_others, weight = found
    assert by_other_p == 0
    assert (own, cross) == pytest.approx((0.3 * 0.7, -0.3 * 0.175))
    assert (by_label, by_other) == pytest.approx((by_p * own, by_p * cross))
    assert weight == pytest.approx(by_others - by_label)


def test_a_wrong_formula_would_be_seen():
    assert printed("mae", 0.1) == pytest.approx(gradients(MAE(), 0.1))
    assert printed("mae", 0.1) != pytest.approx(gradients(CCE(), 0.1))
