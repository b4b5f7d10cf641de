import numpy as np

from imae.report.figures import save_lines

X = np.linspace(0, 1, 5)


def draw(folder, **lines):
    return save_lines(
        folder, "figure", X, lines, title="<title>", x_label="x & x", y_label="y", y_limit=(0, 2)
    )


def test_writes_a_png_and_an_svg(tmp_path):
    png, svg = draw(tmp_path, one=X)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()


def test_the_same_numbers_give_the_same_bytes(tmp_path):
    first = [path.read_bytes() for path in draw(tmp_path / "a", one=X, two=X**2)]
    assert first == [path.read_bytes() for path in draw(tmp_path / "b", one=X, two=X**2)]
    assert first != [path.read_bytes() for path in draw(tmp_path / "c", one=X, two=X**3)]


def test_more_lines_than_colours_stay_apart(tmp_path):
    _, svg = draw(tmp_path, **{f"line {n}": X * n for n in range(9)})
    assert "stroke-dasharray" in svg.read_text()


def test_many_labels_stand_beside_the_lines_without_a_warning(tmp_path):
    few, _ = draw(tmp_path / "few", **{f"method {n}": X * n for n in range(10)})
    many, _ = draw(tmp_path / "many", **{f"method {n}": X * n for n in range(28)})
    width = slice(16, 20)  # of the header of a PNG
    assert few.read_bytes()[width] < many.read_bytes()[width]
