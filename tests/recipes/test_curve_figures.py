from imae.curves import CCE, IMAE
from imae.recipes.tables.paper_figures import draw_values, draw_weights


def test_both_kinds_are_drawn(tmp_path):
    curves = {"CCE": CCE(), "IMAE": IMAE(8.0)}
    for draw, arguments in ((draw_weights, ("Weights", curves)), (draw_values, (curves,))):
        paths = draw(tmp_path, draw.__name__, *arguments)
        assert sorted(path.suffix for path in paths) == [".png", ".svg"]
        assert "<svg" in (tmp_path / f"{draw.__name__}.svg").read_text()
