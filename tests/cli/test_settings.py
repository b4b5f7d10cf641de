import json

import pytest

from imae._draws import DEFAULT_SEED
from imae.cli.app import SEED, gather_settings


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"seed": 1, "train": {"steps": 9, "batch_size": 4}}))
    return path


def test_the_file_comes_first_then_settings_then_flags(config):
    flags = {"seed": 3, "noise": None}
    found = gather_settings(config, ["seed=2", "train.batch_size=8"], flags)
    assert found == {"seed": 3, "train": {"steps": 9, "batch_size": "8"}}
    assert gather_settings(None, None, {}) == {}


def test_a_budget_given_replaces_the_other_kind_in_the_file(config):
    found = gather_settings(config, None, {"train.epochs": 1})
    assert found["train"] == {"batch_size": 4, "epochs": 1}
    assert gather_settings(config, None, {"train.steps": 2})["train"]["steps"] == 2


def test_a_section_of_another_kind_is_left_for_the_check_to_refuse(config):
    config.write_text('{"train": 3}')
    assert gather_settings(config, None, {"train.epochs": 1}) == {"train": {"epochs": 1}}


def test_the_help_names_the_seed_that_runs_have():
    """Help must not load numpy, so it cannot read the number where it is kept."""
    assert SEED.show_default == str(DEFAULT_SEED)
