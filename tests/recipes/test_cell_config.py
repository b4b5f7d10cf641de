import pytest

from imae.errors import ArgumentError
from imae.recipes.recipe import Variant, cell_config, other_setting
from imae.train.config import MethodConfig


@pytest.fixture
def config(recipe):
    return cell_config(recipe.cells("short")[0], Variant(), {"train": {"clip": 5}}, seed=9)


def stored(config, section, **changes):
    content = config.model_dump(mode="json")
    content[section] = {**content[section], **changes}
    return content


def test_settings_are_laid_over_one_another(recipe):
    cell = recipe.cells("short")[0]
    config = cell_config(cell, cell.variants[0], {"train": {"steps": 9}})
    assert (config.optimizer.lr, config.train.steps, config.train.batch_size) == (0.1, 9, 32)
    assert config.seed == 7
    with pytest.raises(ArgumentError, match="unknown key"):
        cell_config(cell, cell.variants[0], {"train": {"step": 9}})


def test_a_run_is_known_again_whatever_machine_it_ran_on(config):
    assert other_setting(config, config.model_dump(mode="json")) is None
    assert other_setting(config, stored(config, "machine", threads=64, compile=True)) is None
    assert other_setting(config, stored(config, "data", root="elsewhere", workers=3)) is None


def test_what_was_left_open_may_have_been_filled_in(config):
    assert other_setting(config, stored(config, "data", trusted=100)) is None
    filled_in = {"name": "forward_symmetric", "arguments": {"num_classes": 10}}
    without = config.model_copy(update={"method": MethodConfig(name="forward_symmetric")})
    assert other_setting(without, stored(config, "method", **filled_in)) is None


@pytest.mark.parametrize(
    ("section", "changes", "words"),
    [
        ("train", {"steps": 5}, "train.steps=5, not 4"),
        ("train", {"clip": None}, "train.clip=null, not 5.0"),
        ("train", {"evaluate_every": 7}, "train.evaluate_every=7, not null"),
        ("method", {"arguments": {"bound": 5.0}}, "method.arguments.bound=5.0, not None"),
        ("machine", {"precision": "bf16-mixed"}, "machine.precision=bf16-mixed, not 32-true"),
    ],
)
def test_a_difference_in_either_direction_is_named(config, section, changes, words):
    assert other_setting(config, stored(config, section, **changes)) == words


def test_a_setting_younger_than_the_run_has_its_default(config):
    content = config.model_dump(mode="json")
    del content["train"]["average"]
    assert other_setting(config, content) is None
    with pytest.raises(ArgumentError, match="unknown key"):
        other_setting(config, {**content, "no_such": 1})
