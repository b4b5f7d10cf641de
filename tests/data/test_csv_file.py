import numpy as np
import pytest

from imae.data import load
from imae.data import table_file as csv_file
from imae.data.table_file import CsvFile
from imae.errors import DataError

PLAIN = "label,x,y\ncat,1,2\ndog,3,4.5\n"


def write(tmp_path, content, name="x.csv"):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        PLAIN.rstrip("\n"),
        PLAIN.replace("\n", "\r\n"),
        "\ufeff" + PLAIN,
        "\ufeff" + PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\n\n"),
        PLAIN.replace("cat", '"cat"').replace("1", " 1 "),
    ],
    ids=["plain", "no end", "crlf", "bom", "bom and crlf", "blank lines", "quoted"],
)
def test_the_same_table_in_many_dresses(tmp_path, content):
    file = CsvFile(write(tmp_path, content))
    values, numbers = file.read(["label"], ["y", "x"])
    assert file.names == ("label", "x", "y")
    assert values == {"label": ["cat", "dog"]}
    assert numbers.tolist() == [[2, 1], [4.5, 3]]
    assert numbers.dtype == np.float64


def test_a_cell_may_hold_a_long_document(tmp_path):
    values, _ = CsvFile(write(tmp_path, "label,text\na," + "b" * 200_000 + "\n")).read(["text"], [])
    assert len(values["text"][0]) == 200_000


def test_tabs_separate_in_tsv(tmp_path):
    file = CsvFile(write(tmp_path, PLAIN.replace(",", "\t"), "x.tsv"))
    assert file.read(["label"], ["x"])[0] == {"label": ["cat", "dog"]}


def test_cells_may_hold_commas_quotes_line_ends_and_emoji(tmp_path):
    file = CsvFile(write(tmp_path, 'text,label\n"a, ""b""\nc 🐈",x\n'))
    assert file.read(["text", "label"], [])[0] == {"text": ['a, "b"\nc 🐈'], "label": ["x"]}


def test_tables_longer_than_a_block_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_BLOCK", 4)
    rows = "".join(f"c{i},{i}\n" for i in range(9))
    values, numbers = CsvFile(write(tmp_path, "label,x\n" + rows)).read(["label"], ["x"])
    assert values["label"] == [f"c{i}" for i in range(9)]
    assert numbers.ravel().tolist() == list(range(9))


def test_no_rows_are_an_empty_table(tmp_path):
    values, numbers = CsvFile(write(tmp_path, "label,x\n")).read(["label"], ["x"])
    assert (values, numbers.shape) == ({"label": []}, (0, 1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("label,x\na,1\nb\n", "line 3 has 1 cells where the header has 2"),
        ("label,x\na,1\nb,2,3\n", "line 3 has 3 cells where the header has 2"),
        ('label,x\na,1\n"b,2\n', "line 3: unexpected end of data"),
        ("label,x\na,1\nb,two\n", "line 3, column 'x': 'two' is not a number"),
        ("label,x\na,1\nb,\n", "line 3, column 'x': '' is not a number"),
        ("label,x\na,nan\n", "line 2, column 'x' is nan"),
        ("label,x\na,1\n\nb,-inf\n", "line 4, column 'x' is -inf"),
        ("label,x\na,1e39\n", r"line 2, column 'x' is 1e\+39"),
        (b"label,x\na\0,1\n", "line 2 holds a NUL byte"),
        (b"label,x\n\xff\xfe,1\n", "is not UTF-8 text"),
        ("label,x\n".encode("utf-16")[:-1], "is not UTF-16-LE text"),
        ("label,x\n" + "a" * 10_000_000 + ",1\n", "line 2 is longer than 10000000 characters"),
    ],
)
def test_refuses(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(DataError, match=message) as caught:
        CsvFile(path).read(["label"], ["x"])
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_an_empty_file_is_refused(tmp_path, content):
    with pytest.raises(DataError, match="is empty"):
        CsvFile(write(tmp_path, content))


def test_a_file_without_line_ends_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_LONGEST_LINE", 1000)
    assert CsvFile(write(tmp_path, "a" * 998 + "\n")).names == ("a" * 998,)
    with pytest.raises(DataError, match="line 1 is longer than 1000 characters"):
        CsvFile(write(tmp_path, "a" * 1000))


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_another_separator_is_seen_in_the_header(tmp_path, separator):
    text = PLAIN.replace(",", separator)
    file = CsvFile(write(tmp_path, f'\n{text}"a, b"{separator}1{separator}2\n'))
    values, numbers = file.read(["label"], ["x", "y"])
    assert values == {"label": ["cat", "dog", "a, b"]}
    assert numbers.tolist() == [[1, 2], [3, 4.5], [1, 2]]


def test_where_semicolons_separate_numbers_may_have_decimal_commas(tmp_path):
    text = "label;x\ncat;1,5\ndog;-,25\ncat;3e2\ndog;4\n"
    assert CsvFile(write(tmp_path, text)).read([], ["x"])[1].ravel().tolist() == [
        1.5,
        -0.25,
        300,
        4,
    ]
    for wrong in ("1,000,000", "1.000,5", ","):
        with pytest.raises(DataError, match=f"line 2, column 'x': '{wrong}' is not a number"):
            CsvFile(write(tmp_path, f"label;x\ncat;{wrong}\n")).read([], ["x"])
    quoted = CsvFile(write(tmp_path, 'label,x\ncat,"1,000"\n'))
    with pytest.raises(DataError, match="'1,000' is not a number"):
        quoted.read([], ["x"])


def test_a_row_is_found_again_by_its_line(tmp_path):
    file = CsvFile(write(tmp_path, 'label,x\n\n"a\nb",1\nc,2\n'))
    assert [file.place(row) for row in (0, 1)] == [f"{file.path}: line {n}" for n in (4, 5)]


def test_a_weight_that_is_not_a_number_names_the_option_that_drops_it(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,weight,label\n1,1,x\n2,heavy,y\n3,1,x\n")
    with pytest.raises(DataError, match=r"column 'weight': 'heavy' .* with drop \(--drop\)$"):
        load(path)
    assert load(path, drop="weight").train.weights is None


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_with_a_mark_is_read(tmp_path, encoding):
    path = tmp_path / "x.csv"
    mark = "" if encoding == "utf-16" else "\ufeff"
    path.write_bytes((mark + "größe,label\n1,ä\n2,b\n").encode(encoding))
    values, numbers = CsvFile(path).read(["label"], ["größe"])
    assert values == {"label": ["ä", "b"]}
    assert numbers[:, 0].tolist() == [1, 2]
