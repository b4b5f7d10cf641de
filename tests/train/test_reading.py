import datetime
import json

import pytest

from imae.errors import ArgumentError
from imae.train.config import build_config, known_settings, read_config_file, with_settings

DATA = {"data": {"name": "digits"}}


def test_all_problems_are_reported_at_once():
    content = {**DATA, "train": {"epoch": 3, "keep": 0}, "seed": "x", "lr": 1, "trian": {}}
    with pytest.raises(ArgumentError) as raised:
        build_config(content)
    lines = str(raised.value).splitlines()
    assert len(lines) == 5
    for expected in (
        "train.epoch: unknown key; did you mean train.epochs?",
        "train.keep: Input should be greater than or equal to 1, got 0",
        "lr: unknown key; did you mean optimizer.lr?",
        "trian: unknown key; did you mean train?",
    ):
        assert expected in lines


def test_a_key_like_no_other_lists_them_all():
    with pytest.raises(ArgumentError, match=r"zzzz: unknown key; known: data\.name, "):
        build_config({**DATA, "zzzz": 1})


def test_settings_are_read_by_the_type_of_the_field():
    content = with_settings(
        {**DATA, "train": {"clip": 1.0}},
        [
            "optimizer.lr=1",
            "schedule.name=steps",
            "schedule.at=10,20",
            "train.drop_last=true",
            "train.clip=none",
            "method.name = imae",
            "method.arguments.T=16",
            "method.arguments.normalize=batch",
            "log=csv",
        ],
    )
    config = build_config(content)
    assert config.optimizer.lr == 1.0
    assert config.schedule.at == (10, 20)
    assert config.train.drop_last is True
    assert config.train.clip is None
    assert config.method.arguments == {"T": 16, "normalize": "batch"}
    assert config.log == ("csv",)


def test_options_of_the_data_have_types_of_their_own():
    content = with_settings(
        DATA,
        [
            "data.options.flip=False",
            "data.options.label_column=2",
            "data.options.feature_columns=f,g",
            "data.options.resize=64",
        ],
    )
    assert content["data"]["options"] == {
        "flip": False,
        "label_column": "2",
        "feature_columns": ["f", "g"],
        "resize": 64,
    }


def test_columns_with_commas_are_given_as_a_list():
    content = with_settings(DATA, ['data.options.feature_columns=["f,g", "h"]'])
    assert content["data"]["options"] == {"feature_columns": ["f,g", "h"]}


def test_a_date_in_a_file_is_refused_as_any_other_text():
    with pytest.raises(ArgumentError, match="seed: Input should be a valid integer"):
        build_config(with_settings({**DATA, "seed": datetime.date(2024, 1, 1)}, []))


def test_settings_do_not_change_what_they_are_given():
    content = {"train": {"epochs": 1}}
    with_settings(content, ["train.epochs=2"])
    assert content == {"train": {"epochs": 1}}


def test_settings_of_another_form_are_refused():
    with pytest.raises(ArgumentError, match="write settings as key=value"):
        with_settings({}, ["seed"])
    with pytest.raises(ArgumentError, match="seed: Input should be a valid integer"):
        build_config(with_settings(DATA | {"seed": 1}, ["seed.x=1"]))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps({"seed": 7, "train": {"epochs": 2}})),
        ("a.toml", "seed = 7\n[train]\nepochs = 2\n"),
        ("b.json", "\ufeff" + json.dumps({"seed": 7, "train": {"epochs": 2}})),
    ],
)
def test_files_are_read(tmp_path, name, text):
    if name.endswith("toml"):
        pytest.importorskip("tomllib")
    (tmp_path / name).write_text(text)
    assert read_config_file(tmp_path / name) == {"seed": 7, "train": {"epochs": 2}}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "cannot be read"),
        ("a.json", "[1]", "must hold an object"),
        ("a.json", "[" * 100_000, "cannot be read"),
        ("a.toml", "x =", "cannot be read|newer"),
        ("a.yaml", "seed: 1", r"a \.json or \.toml file"),
    ],
)
def test_files_that_cannot_be_read_are_one_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ArgumentError, match=message):
        read_config_file(tmp_path / name)
    with pytest.raises(ArgumentError, match="cannot be read"):
        read_config_file(tmp_path / "missing.json")


def test_keys_are_listed_with_their_sections():
    defaults = {setting.key: setting.default for setting in known_settings()}
    assert defaults["optimizer.lr"] == 0.05
    assert defaults["data.name"] is None
    assert "optimizer" not in defaults
