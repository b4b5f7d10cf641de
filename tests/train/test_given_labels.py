import numpy as np
import pytest

from imae.data import Split, Table
from imae.errors import ArgumentError, DataError
from imae.noise import NoiseSpec, symmetric, write_manifest
from imae.train.relabel import corrupt_split, relabel_from_file
from imae.train.rows import prepare

NAMES = ("cat", "dog", "owl")


def make_split(labels=(0, 1, 2, 0), names=NAMES, clean=None):
    ids = np.array(["a", "b", "c", "d"])
    given = None if clean is None else np.array(clean)
    return Split(Table(np.zeros((4, 1), np.float32)), np.array(labels), ids, names, given)


@pytest.fixture
def write(tmp_path):
    def make(text, name="labels.csv"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return make


def test_a_corrected_file_gives_the_labels_and_the_truth_stays_unknown(write):
    path = write("note,row_id,label\nx,d,owl\nx,a,cat\nx,c,dog\nx,b, dog \n")
    split = relabel_from_file(make_split(), path)
    assert split.labels.tolist() == [0, 1, 1, 2]
    assert split.clean_labels is None
    known = relabel_from_file(make_split(clean=[0, 1, 2, 2]), path)
    assert known.clean_labels.tolist() == [0, 1, 2, 2]


def test_parquet_with_class_numbers(tmp_path):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"id": ["a", "b", "c", "d"], "y": [2, 1, 0, 0]})
    pyarrow.parquet.write_table(table, tmp_path / "labels.parquet")
    assert relabel_from_file(make_split(), tmp_path / "labels.parquet").labels.tolist() == [
        2, 1, 0, 0,
    ]  # fmt: skip


def test_labels_of_pandas_with_a_point_mean_the_same_classes(write):
    path = write("id,label\na,2.0\nb,3.0\nc,5\nd,2.0\n")
    found = relabel_from_file(make_split(names=("2", "3", "5")), path)
    assert found.labels.tolist() == [0, 1, 2, 0]


def test_a_number_is_a_name_where_classes_are_called_by_numbers(write):
    path = write("id,label\na,2\nb,3\nc,5\nd,2\n")
    assert relabel_from_file(make_split(names=("2", "3", "5")), path).labels.tolist() == [
        0, 1, 2, 0,
    ]  # fmt: skip
    with pytest.raises(DataError, match=r"row 'a': label '0' is none of the classes \('2', '3'"):
        relabel_from_file(make_split(names=("2", "3", "5")), write("id,label\na,0\nb,1\nc,2\nd,0"))


@pytest.mark.parametrize("clean", [None, [0, 1, 2, 1]])
def test_a_file_of_noise_knows_the_labels_before_it(tmp_path, clean):
    split = make_split(clean=clean)
    noisy = symmetric(split.labels, rate=0.6, num_classes=3, seed=1)
    order = [2, 0, 3, 1]
    shuffled = symmetric(split.labels[order], rate=0.6, num_classes=3, seed=1)
    write_manifest(tmp_path / "noisy.csv", shuffled, split.labels[order], split.row_ids[order])
    found = relabel_from_file(split, tmp_path / "noisy.csv")
    assert found.labels[order].tolist() == shuffled.labels.tolist()
    assert found.clean_labels.tolist() == (clean or split.labels.tolist())
    assert noisy.labels.tolist() != split.labels.tolist()


def test_a_file_of_noise_must_be_of_these_labels(tmp_path):
    split = make_split()
    noisy = symmetric(split.labels, rate=0.6, num_classes=3, seed=1)
    write_manifest(tmp_path / "noisy.csv", noisy, split.labels, split.row_ids)
    with pytest.raises(DataError, match=r"row 'd' had class 0 before .* it has class 1"):
        relabel_from_file(make_split(labels=(0, 1, 2, 1)), tmp_path / "noisy.csv")
    with pytest.raises(DataError, match="was made for 3 classes, the data has 4"):
        relabel_from_file(make_split(names=(*NAMES, "yak")), tmp_path / "noisy.csv")
    text = (tmp_path / "noisy.csv").read_text().replace('"a"', '"z"')
    (tmp_path / "noisy.csv").write_text("\ufeff" + text)
    with pytest.raises(DataError, match="do not agree with the hash"):
        relabel_from_file(split, tmp_path / "noisy.csv")


ALL = "row_id,label\na,cat\nb,cat\nc,cat\nd,cat\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ALL.replace("b,cat\n", ""), r"no label for training row 'b' \(1 of 4 rows"),
        (ALL + "e,cat\nf,cat\n", r"row 'e' is not a training row \(2 of 6 are unknown\)"),
        (ALL + "a,cat\n", "row id 'a' appears twice"),
        (ALL.replace("c,cat", "c,cow"), r"row 'c': label 'cow' is none of the classes \('cat'"),
        (ALL.replace("c,cat", "c,"), "row 'c': label '' is none of the classes"),
        (ALL.replace("c,cat", "c,3"), "row 'c': label '3' is none of the classes"),
        (ALL.replace("row_id", "name"), "no column row_id or id for the ids"),
        (ALL.replace("label", "class"), "no column label or labels or target or y for the labels"),
        (ALL.replace("row_id,label", "row_id,id"), "both row_id and id"),
        ("", "is empty"),
    ],
)
def test_a_file_that_does_not_fit_is_one_line(write, text, message):
    path = write(text)
    with pytest.raises(DataError, match=message) as caught:
        relabel_from_file(make_split(), path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_rows_that_were_left_out_of_the_data_may_be_in_the_file(write):
    path = write(ALL + "broken.jpg,dog\n")
    assert relabel_from_file(make_split(), path, skipped=["broken.jpg"]).labels.sum() == 0


def test_other_files_are_refused(write, tmp_path):
    with pytest.raises(DataError, match=r"nothing\.csv: cannot be read \(No such file"):
        relabel_from_file(make_split(), tmp_path / "nothing.csv")
    with pytest.raises(DataError, match=r"ends in \.csv, \.tsv, \.parquet"):
        relabel_from_file(make_split(), write("x", name="labels.txt"))


def test_a_run_with_a_file_of_noise_is_the_run_with_that_noise(configure, tmp_path):
    noisy = configure(noise="symmetric:0.5")
    plain = prepare(configure(data={"hold_out": 0.0})).train
    noise = corrupt_split(plain, NoiseSpec("symmetric", 0.5), seed=noisy.seed)
    write_manifest(tmp_path / "noisy.csv", noise, plain.labels, plain.row_ids)
    expected = prepare(noisy)
    found = prepare(configure(data={"labels": str(tmp_path / "noisy.csv")}))
    for one, other in ((found.train, expected.train), (found.validation, expected.validation)):
        assert one.labels.tolist() == other.labels.tolist()
        assert one.row_ids.tolist() == other.row_ids.tolist()
        assert one.clean_labels.tolist() == other.clean_labels.tolist()
    with pytest.raises(ArgumentError, match="both define the given labels"):
        configure(noise="symmetric:0.5", data={"labels": "x.csv"})


def test_removed_rows_are_left_out(write):
    path = write("row_id,label,removed\na,dog,\nb,,no class\nc,cat,\nd,dog,")
    found = relabel_from_file(make_split(clean=[0, 1, 2, 2]), path)
    assert found.row_ids.tolist() == ["a", "c", "d"]
    assert found.clean_labels.tolist() == [0, 2, 2]


def test_a_label_that_is_missing_without_a_reason_is_refused(write):
    with pytest.raises(DataError, match="label '' is none of"):
        relabel_from_file(make_split(), write("row_id,label,removed\na,dog,\nb,,\nc,cat,\nd,dog,"))
    path = write("row_id,label,removed\na,,x\nb,,x\nc,,x\nd,,x")
    with pytest.raises(DataError, match="nothing to train on"):
        relabel_from_file(make_split(), path)


def test_a_class_whose_name_ends_in_a_blank_is_found(write):
    names = ("cat", "cat ", "owl")
    found = relabel_from_file(
        make_split(names=names), write("id,label\na,cat \nb,cat\nc,owl\nd, owl")
    )
    assert found.labels.tolist() == [1, 0, 2, 2]


def test_corrected_labels_are_not_given_to_rows_whose_own_labels_are_others_by_now(write):
    path = write(
        "row_id,label,removed,given\na,dog,,cat\nb,,no class,dog\nc,owl,,owl\nd,cat,,cat\n"
    )
    assert relabel_from_file(make_split(), path).labels.tolist() == [1, 2, 0]
    with pytest.raises(DataError, match=r"row 'b' had the label 'dog' .* 'owl' now \(2 of 4"):
        relabel_from_file(make_split(labels=(0, 2, 1, 0)), path)
