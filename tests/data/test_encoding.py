"""Tables as people have them: empty cells, categories, dates and ids."""

import json

import numpy as np
import pytest

from imae.data import describe, hold_out, load, load_unlabelled
from imae.data.encoding import MOST_CATEGORIES, RawTable, as_category, as_dates, fit_encoding
from imae.data.loading import load_unscaled
from imae.data.preparation import describe_preparation, fit_scale, without_rows
from imae.errors import ArgumentError, DataError

REAL = """customer,age,colour,joined,member,row,label
u1,31,red,2024-01-05,true,1,yes
u2,,blue,2024-02-05,false,2,no
u3,NA,red,,true,3,yes
u4,52,,2023-12-31T12:00:00,true,4,no
u5,18,green,2024-01-01,false,5,yes
u6,40,red,2024-03-01,true,6,no
"""


def repeated(header_and_rows: str, times: int) -> str:
    """The rows again and again, the first and the sixth cell with a number of their own."""
    header, *rows = header_and_rows.splitlines()
    lines = [header]
    for number in range(times * len(rows)):
        cells = rows[number % len(rows)].split(",")
        cells[0], cells[5] = f"u{number}", str(number)
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def test_a_real_table_is_taken(tmp_path):
    path = tmp_path / "customers.csv"
    path.write_text(repeated(REAL, 5))
    data = load(path)
    table = data.train.inputs
    assert table.columns == (
        *("age", "age is missing", "colour=red", "colour=blue", "colour=green"),
        *("joined", "joined is missing", "member=false"),
    )
    assert np.isfinite(table.values).all()
    np.testing.assert_allclose(table.values.mean(0), 0, atol=1e-6)
    missing = table.values[:, 1] > 0
    assert missing[:6].tolist() == [False, True, True, False, False, False]
    assert (table.values[missing, 0] == table.values[1, 0]).all()
    assert (
        "'customer' is not used: it has 30 different words in 30 rows, as ids do" in data.notes[0]
    )
    counting = "column 'row' is not used: it counts the rows; if it names the rows, give it with"
    assert f"{counting} id_column (--id-column)" in data.notes
    assert dict(data.columns) == {
        "row": "not used: counts the rows",
        "customer": "not used: has 30 different words in 30 rows, as ids do",
        "age": "number, 10 cells empty",
        "colour": "category of 3 words, 5 cells empty",
        "joined": "date, 5 cells empty",
        "member": "category of 2 words",
        "label": "label",
    }
    assert dict(load(path, drop=["age"]).columns)["age"] == "not used: left out"
    assert any("column 'age' has 10 empty cells of 30" in note for note in data.notes)
    assert describe(data) == (
        "customers: 30 training rows; 2 classes (no 15, yes 15); columns age (number), "
        "colour (category), joined (date), member (category)"
    )


def test_new_rows_are_encoded_as_the_training_rows(tmp_path):
    path = tmp_path / "customers.csv"
    path.write_text(repeated(REAL, 5))
    data = load(path)
    described = json.loads(json.dumps(describe_preparation(data.train.inputs)))
    like = without_rows(described)
    same = load_unlabelled(path, like=like)
    np.testing.assert_array_equal(same.inputs.values, data.train.inputs.values)
    new = tmp_path / "new.csv"
    new.write_text("joined,member,colour,age\n2024-01-05,true,red,31\n,,purple,\n")
    rows = load_unlabelled(new, like=like).inputs
    np.testing.assert_array_equal(rows.values[0], data.train.inputs.values[0])
    unknown = dict(zip(like.columns, rows.values[1] * like.std + like.mean, strict=True))
    assert [unknown[name] for name in like.columns if "colour" in name] == pytest.approx(
        [0] * 3, abs=1e-6
    )
    assert unknown["age is missing"] == pytest.approx(1)
    assert unknown["age"] == pytest.approx(35.5)  # the median of 31, 52, 18 and 40


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("age,colour,joined\n1,red,2024-01-01\n", "there is no column 'member'"),
        (
            "age,colour,joined,member\nold,red,,true\n",
            "'age' was a number in training and is a category here",
        ),
        (
            "age,colour,joined,member\n1,red,soon,true\n",
            "'joined' was a date in training and is not one here, for example 'soon'; dates were "
            "written as 2024-05-17",
        ),
        (
            "age,colour,joined,member\n1,red,05/06/2024,true\n",
            "'joined' was a date in training and is not one here, for example '05/06/2024'",
        ),
        (
            "age,colour,joined,member\n2024-01-01,red,2024-01-01,true\n",
            "'age' was a number in training and is a date here",
        ),
        (
            "age,colour,joined,member\n1,7,2024-01-01,true\n",
            "'colour' was a category in training and is a number here, for example '7'",
        ),
        (
            "age,colour,joined,member\n1,red,2024-01-01,2024-01-01\n",
            "'member' was a category in training and is a date here",
        ),
    ],
)
def test_new_rows_of_another_kind_are_refused(tmp_path, content, message):
    path = tmp_path / "customers.csv"
    path.write_text(repeated(REAL, 5))
    like = without_rows(describe_preparation(load(path).train.inputs))
    new = tmp_path / "new.csv"
    new.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        load_unlabelled(new, like=like)
    assert "\n" not in str(caught.value)


def dated(dates: list[str]) -> str:
    rows = [f"{day},{('x', 'y')[row % 2]}" for row, day in enumerate(dates)]
    return "when,label\n" + "\n".join(rows) + "\n"


def prepared_like(path, content):
    path.write_text(content)
    data = load(path)
    return without_rows(json.loads(json.dumps(describe_preparation(data.train.inputs)))), data


def test_new_dates_are_read_in_the_format_of_training(tmp_path):
    path = tmp_path / "x.csv"
    like, data = prepared_like(path, dated(["02/01/2024", "05/04/2024", "25/12/2024"]))
    assert data.notes == ("class 'y' has only one training row",)
    path.write_text(dated(["02/01/2024", "05/04/2024"]))  # without a day above 12
    rows = load_unlabelled(path, like=like)
    np.testing.assert_array_equal(rows.inputs.values, data.train.inputs.values[:2])
    path.write_text(dated(["2024-01-02", "2024-04-05"]))  # clear, if of another format
    rows = load_unlabelled(path, like=like)
    np.testing.assert_array_equal(rows.inputs.values, data.train.inputs.values[:2])
    path.write_text(dated(["02/01/2024", "04/25/2024"]))
    with pytest.raises(DataError, match=r"'04/25/2024'; dates were written as day/month/year"):
        load_unlabelled(path, like=like)


def test_training_dates_that_can_be_read_in_two_ways_are_noted(tmp_path):
    path = tmp_path / "x.csv"
    like, data = prepared_like(path, dated(["02/01/2024", "05/04/2024"] * 3))
    assert "such as '02/01/2024', can be read as month/day and as day/month" in data.notes[0]
    path.write_text(dated(["25/12/2024"]))
    with pytest.raises(DataError, match="dates were written as month/day/year"):
        load_unlabelled(path, like=like)


def test_dates_of_earlier_versions_are_read_as_they_were(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(dated(["02/01/2024", "25/12/2024"]))
    described = describe_preparation(load(path).train.inputs)
    del described["encoding"][0]["date_format"]
    path.write_text(dated(["02/01/2024"]))
    rows = load_unlabelled(path, like=without_rows(described))
    assert "read as month/day" in rows.notes[0]
    described["encoding"][0]["date_format"] = "%c"
    with pytest.raises(DataError, match="dates have an unknown format"):
        without_rows(described)


def test_a_few_cells_that_are_no_dates_are_noted(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(dated(["2024-01-02", "soon", "2024-01-04", "2024-01-05"]))
    assert load(path).notes[0] == (
        "column 'when': 1 of 4 cells, such as 'soon', are not dates written as the others are "
        "(2024-05-17), so all count as words; correct or empty them"
    )


def flags(words: list[str]) -> str:
    return dated(words).replace("when", "flag")


@pytest.mark.parametrize(("yes", "no"), [("true", "false"), ("1", "0"), ("T", "F"), ("YES", "no")])
def test_booleans_may_be_written_otherwise_in_new_rows(tmp_path, yes, no):
    path = tmp_path / "x.csv"
    like, data = prepared_like(path, flags(["True", "False", "False", "True"]))
    path.write_text(flags([yes, no, no, yes]))
    rows = load_unlabelled(path, like=like)
    np.testing.assert_array_equal(rows.inputs.values, data.train.inputs.values)
    assert rows.notes == ()


def test_words_may_differ_in_case_in_new_rows_if_it_is_clear_what_they_mean():
    (encoding,) = fit_encoding(RawTable((as_category("c", ["Red", "a", "A", "blue"]),)))
    new = as_category("c", ["RED", "Blue", "A", "a"])
    known = as_category("c", ["Red", "blue", "A", "a"])
    np.testing.assert_array_equal(encoding.encode(new), encoding.encode(known))
    assert encoding.unknown_words(new) == {}
    (encoding,) = fit_encoding(RawTable((as_category("c", ["x", "a", "A"]),)))
    unclear = as_category("c", ["X", "1"])
    assert encoding.unknown_words(unclear) == {"1": 1}


def test_an_unknown_word_is_not_the_first_category(tmp_path):
    path = tmp_path / "x.csv"
    like, data = prepared_like(path, flags(["red", "blue", "blue", "red"]))
    path.write_text(flags(["red", "green", "", "blue", "green"]))
    rows = load_unlabelled(path, like=like)
    red, green, empty, blue, _ = rows.inputs.values.ravel()
    assert {red, blue} == set(data.train.inputs.values.ravel())
    assert green == empty == (red + blue) / 2
    assert rows.notes == (
        "column 'flag': 2 of 5 cells hold words that no training row has ('green')",
        "column 'flag': 1 of 5 cells is empty, and no training row has an empty one",
    )


def test_words_of_test_rows_that_no_training_row_has_are_noted(tmp_path):
    path = tmp_path / "x.csv"
    rows = [
        f"{word},{part},{row % 2}"
        for row, (word, part) in enumerate(
            [("a", "train"), ("b", "train"), ("a", "train"), ("b", "train"), ("c", "test")]
        )
    ]
    path.write_text("word,split,label\n" + "\n".join(rows) + "\n")
    assert load(path).notes == (
        "test rows: column 'word': 1 of 1 cells holds a word that no training row has ('c')",
    )


def test_the_encoding_is_fitted_on_the_rows_that_are_trained_on(tmp_path):
    path = tmp_path / "x.csv"
    rows = [f"{'a' if row % 2 else 'b'},{row},{row % 2}" for row in range(40)]
    rows[7] = "only once,,1"
    path.write_text("word,number,label\n" + "\n".join(rows) + "\n")
    data, is_scaled = load_unscaled(path)
    assert not is_scaled
    assert isinstance(data.train.inputs, RawTable)
    held = [seed for seed in range(40) if "7" in hold_out(data.train, 0.3, seed)[1].row_ids]
    train, validation = hold_out(data.train, 0.3, held[0])
    change = fit_scale(train, source="x")
    assert change(train).inputs.columns == ("word=b", "number")
    assert np.isfinite(change(validation).inputs.values).all()
    with pytest.raises(ArgumentError, match="a raw table has no batches"):
        train.inputs.batch(np.arange(2), generator=None)


def test_a_column_of_many_categories_becomes_one_number():
    words = [f"w{number % 60}" for number in range(120)] + ["w3"] * 5
    table = RawTable((as_category("word", words),))
    (encoding,) = fit_encoding(table)
    assert len(encoding.categories) > MOST_CATEGORIES
    assert encoding.feature_names() == ["rank of word"]
    encoded = encoding.encode(as_category("word", ["w3", "never seen", None]))
    assert encoded.ravel().tolist() == [0, 60, 60]


@pytest.mark.parametrize(
    ("cells", "days"),
    [
        (["1970-01-02", None, "1970-01-03T12:00:00"], [1, np.nan, 2.5]),
        (["1970-01-02T00:00:00Z", "1970-01-01T23:00:00-01:00"], [1, 1]),
        (["1970/01/02", "NA"], [1, np.nan]),
        (["02.01.1970"], [1]),
        (["01/02/1970", "01/13/1970"], [1, 12]),
        (["02/01/1970", "13/01/1970"], [1, 12]),
        (["13/01/1970 12:00", "02/01/1970 06:00:00", "02/01/1970"], [12.5, 1.25, 1]),
        (["01.01.1970 6:00 PM"], [0.75]),
    ],
)
def test_dates_become_days(cells, days):
    column = as_dates("when", cells)
    assert column is not None
    np.testing.assert_allclose(column.values, days)


@pytest.mark.parametrize(
    "cells", [["2024-01-01", "soon"], [None, "NA"], ["12:30"], ["1/2"], ["1/2/1970 25:00"]]
)
def test_what_is_not_a_date(cells):
    assert as_dates("when", cells) is None


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("1 2 3 4x 5", r"line 5, column 'a': '4x' is not a number"),
        ("1 2 inf 4 5", r"line 4, column 'a' is inf; numbers must be finite"),
        ("1 2 1e300 4 5", r"line 4, column 'a' is 1e\+300"),
    ],
)
def test_a_few_strange_cells_among_numbers_are_an_error(tmp_path, cells, message):
    path = tmp_path / "x.csv"
    rows = [f"{cell},{row % 2}" for row, cell in enumerate(cells.split())]
    path.write_text("a,label\n" + "\n".join(rows) + "\n")
    with pytest.raises(DataError, match=message):
        load(path)


def test_the_error_names_the_column_that_is_wrong(tmp_path):
    path = tmp_path / "x.csv"
    ages = [*"0123", "3x", *"5678"]
    rows = [f"{('red', 'blue')[row % 2]},{age},{row % 2}" for row, age in enumerate(ages)]
    path.write_text("colour,age,label\n" + "\n".join(rows))
    with pytest.raises(DataError, match=r"x\.csv: line 6, column 'age': '3x' is not"):
        load(path)


def test_columns_are_dropped_and_named(tmp_path):
    path = tmp_path / "x.csv"
    rows = [f"k{row},{row % 3},{row * 7 % 11},{row % 2}" for row in range(30)]
    path.write_text("key,class,a,b\n" + "\n".join(rows) + "\n")
    data = load(path, label_column="class", id_column="key", drop=["b"])
    assert data.train.row_ids[:2].tolist() == ["k0", "k1"]
    assert data.train.inputs.columns == ("a",)
    assert load(path, label_column="class", drop="key,b").train.inputs.columns == ("a",)
    with pytest.raises(DataError, match="no column is left"):
        load(path, label_column="class", drop="a,b")
    with pytest.raises(DataError, match="'a' is both used and dropped"):
        load(path, label_column="a", drop="a")
    with pytest.raises(DataError, match="has no column 'c'"):
        load(path, label_column="class", drop="c")
    kept = load(path, label_column="class", feature_columns="key,a")
    assert kept.train.inputs.columns[0] == "key=k0"


@pytest.mark.parametrize(
    ("labels", "note"),
    [
        (["cat", "Cat", "dog"] * 10, "classes 'Cat' and 'cat' differ only in case or blanks"),
        (["\u00e9", "e\u0301", "x"] * 10, "differ only in how letters are coded (Unicode)"),
        ([f"{row / 7:.3f}" for row in range(100)], "100 different numbers with decimals"),
        ([f"name{row}" for row in range(30)], "there are 30 classes for 30 training rows"),
        (["a", *["b"] * 29], "class 'a' has only one training row"),
        (["a", "b", "NA"] * 10, "10 training rows have the label 'NA', which counts as a class"),
    ],
)
def test_doubtful_labels_are_noted(tmp_path, labels, note):
    path = tmp_path / "x.csv"
    path.write_text(
        "a,label\n" + "\n".join(f"{row * 7 % 11},{each}" for row, each in enumerate(labels))
    )
    assert any(note in each for each in load(path).notes)


@pytest.mark.parametrize(
    ("cells", "is_copy"),
    [
        (["0", "1"], True),
        (["no", "yes"], True),
        (["0", "1", "0", "1", "0", "", "0", "1", "0", "1"], True),
        (["0", "1", "0", "1", "2", "1"], False),
        (["0", "0"], False),
        (["0", "1", "0", "1", "0", "1", "0", "1", "1", "0"], False),
    ],
)
def test_a_column_that_tells_every_label_is_noted(tmp_path, cells, is_copy):
    path = tmp_path / "x.csv"
    lines = [f"{row * 7 % 11},{cells[row % len(cells)]},{'ab'[row % 2]}" for row in range(60)]
    path.write_text("\n".join(["a,code,label", *lines]))
    told = [note for note in load(path).notes if "gives away the label of every row" in note]
    assert [note.endswith("leave it out: --drop code") for note in told] == [True] * is_copy


def test_a_column_of_image_names_is_asked_about(tmp_path):
    path = tmp_path / "metadata.csv"
    path.write_text("file_name,label\n" + "\n".join(f"{row}.JPG,{row % 2}" for row in range(30)))
    with pytest.raises(
        DataError, match=r"if it names images: --set data\.options\.path_column=file"
    ):
        load(path)


def test_ordinary_data_has_no_notes(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,label\n" + "\n".join(f"{row * 7 % 11},{row % 2}" for row in range(30)))
    assert load(path).notes == ()


def test_columns_beside_texts_are_noted(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("text,age,label\ngood film,3,a\nbad film,4,b\n")
    assert load(path).notes[0] == "columns 'age' are not used: the inputs are the texts in 'text'"


def test_a_lone_column_of_texts_is_found_and_predicted_on(tmp_path):
    path = tmp_path / "x.csv"
    rows = [
        f"the film number {row} was {'good' if row % 2 else 'bad'},{row % 2}" for row in range(30)
    ]
    path.write_text("review,label\n" + "\n".join(rows) + "\n")
    data = load(path)
    assert data.notes == ("column 'review' is taken as texts",)
    like = without_rows(describe_preparation(data.train.inputs))
    same = load_unlabelled(path, like=like).inputs
    assert same.content_hash() == data.train.inputs.content_hash()


def test_a_nearly_constant_column_is_not_blown_up(tmp_path):
    values = np.zeros((1000, 3))
    values[:, 0] = 5 + 1e-12 * np.random.Generator(np.random.PCG64(1)).standard_normal(1000)
    values[3, 1] = 1e-9
    values[:, 2] = np.arange(1000) % 2
    np.savez(tmp_path / "x.npz", x=values, y=np.arange(1000) % 2)
    table = load(tmp_path / "x.npz").train.inputs
    assert np.abs(table.values[:, 0]).max() < 1e-6
    assert np.abs(table.values[:, 1]).max() <= 20
    np.testing.assert_allclose(table.values[:, 2].std(), 1, rtol=1e-6)


def test_a_strange_cell_is_named_by_file_and_line(tmp_path):
    path = tmp_path / "x.csv"
    lines = [f"{row},{row % 7},{'ab'[row % 2]}" for row in range(40)]
    lines[1] = ",1,a"  # the first cell that is not a number is another one
    lines[28] = "28,8 cm,a"
    path.write_text("\n".join(["size,width,label", *lines]))
    with pytest.raises(DataError) as caught:
        load(path)
    assert str(caught.value).startswith(
        f"{path}: line 30, column 'width': '8 cm' is not a number, as most"
    )


@pytest.mark.parametrize("empty", ["-", "--", ".", "n.a.", "N/A", "?"])
def test_signs_for_nothing_are_empty_cells(tmp_path, empty):
    path = tmp_path / "x.csv"
    lines = [f"{empty if row == 3 else row * row},{'ab'[row % 2]}" for row in range(30)]
    path.write_text("\n".join(["size,label", *lines]))
    data = load(path)
    assert data.train.inputs.columns == ("size", "size is missing")
    assert dict(data.columns)["size"] == "number, 1 cells empty"


def test_a_file_of_a_european_spreadsheet_is_taken(tmp_path):
    path = tmp_path / "x.csv"
    lines = [f"{'' if row == 3 else f'{row * row},5'};{'ab'[row % 2]}" for row in range(30)]
    path.write_text("\n".join(["size;label", *lines]))
    data = load(path)
    assert data.train.inputs.columns == ("size", "size is missing")
    assert "cells are separated by semicolons" in data.notes[0]


def prices(cells: list[str]) -> str:
    lines = [f'"{cell}",{"ab"[row % 2]}' for row, cell in enumerate(cells)]
    return "\n".join(["price,label", *lines]) + "\n"


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["$1.23", "-$1,234.50", "$7"], [1.23, -1234.5, 7]),
        (["12.3%", "4 %", ""], [12.3, 4, np.nan]),
        (["1,234,567", "17"], [1_234_567, 17]),
        (["1,5", "2,75"], [1.5, 2.75]),
        (["1.234,5 €", "€3"], [1234.5, 3]),
    ],
)
def test_numbers_with_units_and_thousands_are_read(tmp_path, cells, values):
    path = tmp_path / "x.csv"
    path.write_text(prices(cells * 2))
    data, _ = load_unscaled(path)
    (column,) = data.train.inputs.columns
    assert column.kind == "number"
    np.testing.assert_allclose(column.values, values * 2)
    assert any("are read as numbers, here" in note for note in data.notes)
    assert not any("thousands or decimals" in note for note in data.notes)
    like, data = prepared_like(path, prices(cells * 2))
    np.testing.assert_array_equal(
        load_unlabelled(path, like=like).inputs.values, data.train.inputs.values
    )


def test_numbers_that_can_be_read_in_two_ways_are_noted(tmp_path):
    path = tmp_path / "x.csv"
    like, data = prepared_like(path, prices(["1,234", "5,678"] * 3))
    assert "are read as numbers, here 1234" in data.notes[0]
    assert "thousands or decimals" in data.notes[0]
    path.write_text(prices(["1,234.5"]))  # of training, not of these cells
    assert len(load_unlabelled(path, like=like)) == 1


@pytest.mark.parametrize(
    ("trained", "new", "message"),
    [
        (["$1.50", "$2.50"], ["1.50"], r"'1.50'; numbers were written as \$1,234.5"),
        (["12%", "13%"], ["$12"], r"'\$12'; numbers were written as 1,234.5%"),
        (["12", "13"], ["12%"], r"plain numbers in training, and here they are written as 1,234"),
    ],
)
def test_new_numbers_written_otherwise_are_refused(tmp_path, trained, new, message):
    path = tmp_path / "x.csv"
    colours = "\n".join(f"{row},red" for row in prices(trained * 2).splitlines()[1:])
    like, _ = prepared_like(path, f"price,label,colour\n{colours}\n")
    path.write_text(f"price,colour\n{new[0]},red\n")
    with pytest.raises(DataError, match=message):
        load_unlabelled(path, like=like)


def test_numbers_of_several_units_are_words_and_noted(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(prices(["$1", "$2", "€3", "$4"] * 2))
    data, _ = load_unscaled(path)
    assert data.train.inputs.columns[0].kind == "category"
    assert "2 of 8 cells, such as '€3', are not numbers written as the others" in data.notes[0]


@pytest.mark.parametrize(
    ("signs", "note"),
    [
        ("$€£", "column 'price': its 30 numbers have several units, such as '$0', '€1', '£2', so"),
        ("$$$$$$$$$€", "column 'price': 3 of 30 cells, such as '€9', are not numbers written as"),
    ],
)
def test_prices_that_look_like_ids_are_noted(tmp_path, signs, note):
    path = tmp_path / "x.csv"
    lines = [f"{signs[row % len(signs)]}{row},{row % 4},{'ab'[row % 2]}" for row in range(30)]
    path.write_text("\n".join(["price,size,label", *lines]))
    data, _ = load_unscaled(path)
    unused = "column 'price' is not used: it has 30 different words in 30 rows, as ids do"
    assert data.notes[0] == unused
    assert data.notes[1].startswith(note)


def test_labels_of_minus_one_are_taken_and_noted_beside_zero(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("size,label\n" + "1,-1\n5,1\n" * 5)
    data = load(path)
    assert data.class_names == ("-1", "1")
    assert data.notes == ()
    path.write_text("size,label\n" + "1,-1\n5,1\n7,0\n" * 5)
    assert load(path).notes[0].startswith("5 training rows have the label -1, which counts as a")


def test_a_column_that_weights_the_rows_is_said(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("size,weight,label\n" + "1,70,a\n4,80,b\n" * 5)
    data = load(path)
    assert describe(data).endswith("; rows have weights")
    assert "column 'weight' weights the rows in training" in data.notes[0]
    assert "--set data.options.feature_columns=weight,..." in data.notes[0]
    data = load(path, feature_columns="weight,size")
    assert data.notes == ()
    assert data.train.inputs.columns == ("weight", "size")


@pytest.mark.parametrize("other", ["3", ""])
def test_a_cell_that_decides_the_scale_of_all_others_is_noted(tmp_path, other):
    path = tmp_path / "x.csv"
    for far, is_noted in ((30, False), (999999, True)):
        cells = [*(row % 7 for row in range(99)), far]
        lines = [f"{cell},{row % 3 or other},{'ab'[row % 2]}" for row, cell in enumerate(cells)]
        path.write_text("\n".join(["size,beside,label", *lines]))
        data, _ = load_unscaled(path)
        note = "column 'size': 1 of 100 cells, such as 999999, are so far from the others that"
        assert any(each.startswith(note) for each in data.notes) == is_noted


def test_a_column_has_one_role(tmp_path):
    (tmp_path / "t.csv").write_text("y,a,file\n" + "p,1,a.png\nq,2,b.png\n" * 5)
    for options, message in (
        ({"label_column": "y", "feature_columns": ["y", "a"]}, "'y' is a feature and has another"),
        ({"label_column": "y", "id_column": "y"}, "'y' holds the labels and is named again"),
    ):
        with pytest.raises(DataError, match=message):
            load(str(tmp_path / "t.csv"), **options)


def test_words_are_the_same_in_every_file(tmp_path):
    keys = []
    for name, words in (("one", "blue red blue"), ("two", "blue green blue")):
        lines = [f"{word},{number},{'ab'[number % 2]}" for number, word in enumerate(words.split())]
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(["colour,size,label", *lines]))
        keys.append(load_unscaled(str(path))[0].train.inputs.row_keys())
    assert (keys[0] == keys[1]).tolist() == [True, False, True]
