import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imae.errors import ArgumentError, DataError
from imae.noise.by_class import from_transition, symmetric
from imae.noise.manifest import read_manifest, write_manifest

CLEAN = [0, 1, 2, 0, 1]
IDS = ["a", "b", "c", "d", "e"]
AWKWARD = [
    "plain",
    "",
    "comma, comma",
    'quote " and ""',
    "line\nbreak",
    "carriage\rreturn",
    "both\r\n",
    "tab\t",
    " spaces ",
    "# comment",
    "=1+1",
    "../up/and/away.png",
    "über/naïve/日本語",
    "family 👨‍👩‍👧 emoji",
    "\ufeffbom",
    "\u2028separator",
    "'",
    "0",
    "00",
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "labels.csv"


@pytest.fixture
def written(path):
    write_manifest(path, noise(CLEAN), CLEAN, IDS)
    return path


def noise(clean, rate=0.4):
    return symmetric(clean, rate=rate, num_classes=3, seed=1)


def assert_same(manifest, noisy, clean, ids):
    assert manifest.row_ids.tolist() == ids
    assert np.array_equal(manifest.labels, noisy.labels)
    assert np.array_equal(manifest.clean_labels, clean)
    assert manifest.labels.dtype == manifest.clean_labels.dtype == np.int64
    assert (manifest.kind, manifest.rate, manifest.seed) == (noisy.kind, noisy.rate, noisy.seed)
    assert manifest.num_classes == len(noisy.transition)


def test_awkward_ids_come_back(path):
    clean = np.arange(len(AWKWARD)) % 3
    noisy = noise(clean)
    write_manifest(path, noisy, clean, AWKWARD)
    assert_same(read_manifest(path), noisy, clean, AWKWARD)


@settings(
    deadline=None,  # a busy machine is no failure
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    ids=st.lists(
        st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")),
        min_size=1,
        max_size=12,
        unique=True,
    ),
    rate=st.floats(0, 1, exclude_max=True),
    seed=st.integers(0, 2**128),
    num_classes=st.integers(2, 1000),
)
def test_every_manifest_comes_back(tmp_path, ids, rate, seed, num_classes):
    path = tmp_path / "labels.csv"
    clean = np.arange(len(ids)) % num_classes
    noisy = symmetric(clean, rate=rate, num_classes=num_classes, seed=seed)
    write_manifest(path, noisy, clean, ids)
    assert_same(read_manifest(path), noisy, clean, ids)


def test_the_file_is_the_documented_one(written):
    lines = written.read_text().splitlines()
    assert lines[0].startswith("# imae-labels 1 kind=symmetric rate=0.4 seed=1 classes=3 sha256=")
    assert lines[1] == '"row_id","given","clean"'
    labels = noise(CLEAN).labels
    assert lines[2:] == [
        f'"{row_id}",{given_label},{clean_label}'
        for row_id, given_label, clean_label in zip(IDS, labels, CLEAN, strict=True)
    ]


def test_one_seed_gives_the_same_file_everywhere(written):
    assert (
        "sha256=562765c4defd7e349d8e25fdb9c4d70ea7e158b97b826a3141d5ce1623c120ba"
        in written.read_text()
    )


def test_any_csv_reader_reads_it(path):
    clean = np.arange(len(AWKWARD)) % 3
    write_manifest(path, noise(clean), clean, AWKWARD)
    with open(path, encoding="utf-8", newline="") as file:
        next(file)
        assert [row["row_id"] for row in csv.DictReader(file)] == AWKWARD


def test_a_matrix_that_always_changes_labels_comes_back(path):
    noisy = from_transition(CLEAN, transition=np.roll(np.eye(3), 1, axis=1), seed=1)
    write_manifest(path, noisy, CLEAN, IDS)
    assert_same(read_manifest(path), noisy, CLEAN, IDS)


@pytest.mark.parametrize("rate", [-0.0, np.float64(0.25)])
def test_every_form_of_a_rate_comes_back(path, rate):
    noisy = replace(noise(CLEAN), rate=rate)
    write_manifest(path, noisy, CLEAN, IDS)
    assert_same(read_manifest(path), noisy, CLEAN, IDS)


@pytest.mark.parametrize("wrong", [{"kind": "made up"}, {"kind": ""}, {"rate": -0.1}, {"seed": -1}])
def test_what_could_not_be_read_again_is_not_written(path, wrong):
    with pytest.raises(ArgumentError, match="noisy must have a kind of one word"):
        write_manifest(path, replace(noise(CLEAN), **wrong), CLEAN, IDS)
    assert not path.exists()


def test_the_longest_id_comes_back_and_a_longer_one_is_refused(path):
    noisy, ids = noise(CLEAN), [*IDS[:4], "e" * 100_000]
    write_manifest(path, noisy, CLEAN, ids)
    assert_same(read_manifest(path), noisy, CLEAN, ids)
    with pytest.raises(DataError, match=r"row id 'e{40}'\.\.\. has 100001 characters"):
        write_manifest(path, noisy, CLEAN, [*IDS[:4], "e" * 100_001])


@pytest.mark.parametrize(
    ("name", "message"), [("absent.csv", "No such file or directory"), ("", "Is a directory")]
)
def test_a_path_without_a_file_is_refused(tmp_path, name, message):
    with pytest.raises(DataError, match=f"{re.escape(str(tmp_path / name))}: {message}$"):
        read_manifest(tmp_path / name)


def test_a_spreadsheet_may_save_it(written):
    # Byte-order mark, CRLF, no needless quotes, the first line padded to three columns.
    first, *rest = written.read_text().replace('"', "").splitlines()
    written.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([f"{first},,", *rest, ""]).encode())
    assert_same(read_manifest(written), noise(CLEAN), CLEAN, IDS)


def test_labels_are_found_by_row_id(written):
    labels = noise(CLEAN).labels
    manifest = read_manifest(written)
    assert manifest.labels_for(["e", "a"]).tolist() == [labels[4], labels[0]]
    assert np.array_equal(manifest.labels_for(np.array(IDS)), labels)
    with pytest.raises(DataError, match="2 rows have no label in this file, the first is 'x'"):
        manifest.labels_for(["a", "x", "y"])


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("# imae-labels 1", "# imae-labels 2", "line 1"),
        ("rate=0.4", "rate=much", "line 1"),
        ("seed=1", "seed=-1", "line 1"),
        ("rate=0.4", "rate=0.5", "hash"),
        ("seed=1", "seed=2", "hash"),
        ("kind=symmetric", "kind=uniform", "hash"),
        ("classes=3", "classes=4", "hash"),
        ("classes=3", "classes=2", "line 5 must be a row id and two labels"),
        ('"given","clean"', '"clean","given"', "line 2"),
        ('"a"', '"A"', "hash"),
        ('"e",0,1', '"e",1,1', "hash"),
        ('"e",0,1', '"e",0,0', "hash"),
        ('"e",0,1', '"e",3,1', r"line 7 must be a row id and two labels in \[0, 3\), got 'e,3,1'"),
        ('"e",0,1', '"e",-1,1', "line 7"),
        ('"e",0,1', '"e",one,1', "line 7"),
        ('"e",0,1', '"e",1', "line 7"),
        ('"e",0,1', '"e",1,1,1', "line 7"),
        ('"e",0,1', "\n", "line 7"),
        ('"e",0,1\n', "", "hash"),
        ('"e",0,1', f'"e",{"9" * 5000},1', "line 7"),
        ('"e",0,1', '"e",1,1\n"f",1,1', "hash"),
        ('"e",0,1', '"e,1,1', "not CSV"),
    ],
)
def test_damage_is_found(written, before, after, message):
    text = written.read_text()
    assert text.count(before) == 1
    written.write_text(text.replace(before, after))
    with pytest.raises(DataError, match=message) as caught:
        read_manifest(written)
    assert str(caught.value).startswith(str(written))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", range(0, 150, 7))
def test_a_truncated_file_is_refused(written, size):
    written.write_bytes(written.read_bytes()[:size])
    with pytest.raises(DataError, match=r"labels\.csv: "):
        read_manifest(written)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x89PNG\r\n\x1a\n\xff", b"a,b,c\n1,2,3\n"])
def test_other_files_are_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"labels\.csv: "):
        read_manifest(path)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", "b", "c", "d", "a"], "row id 'a' appears twice"),
        (["a", "b", "c", "d", "e\0"], "cannot be written as text"),
        (["a", "b", "c", "d", "\ud800"], "cannot be written as text"),
        (["a", "b", "c", "d", "e\udfff"], "cannot be written as text"),
    ],
)
def test_bad_ids_are_refused_and_nothing_is_written(path, ids, message):
    with pytest.raises(DataError, match=message):
        write_manifest(path, noise(CLEAN), CLEAN, ids)
    assert not path.exists()


@pytest.mark.parametrize(
    ("clean", "ids", "message"),
    [
        (CLEAN, IDS[:4], "the same length, got 4, 5 and 5"),
        (CLEAN[:4], IDS, "the same length, got 5, 4 and 5"),
        ([1, 1, 1, 1, 1], IDS, "labels that the noise started from"),
        ([0, 1, 3, 0, 1], IDS, r"\[0, 3\), got 3"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(path, clean, ids, message):
    with pytest.raises(ArgumentError, match=message):
        write_manifest(path, noise(CLEAN), clean, ids)
    assert not Path(path).exists()
