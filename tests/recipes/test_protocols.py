import pytest

from imae.recipes.protocols import CIFAR10, CIFAR100, short
from imae.recipes.recipe import merged
from imae.train import build_config


def test_the_papers_settings_are_valid_and_as_printed():
    ten = build_config({**CIFAR10, "method": {"name": "cce"}})
    assert (ten.train.steps, ten.train.batch_size, ten.seed) == (100_000, 128, 123)
    assert ten.schedule.at == (32_000, 48_000)
    assert (ten.optimizer.lr, ten.optimizer.momentum, ten.optimizer.weight_decay) == (
        0.1,
        0.9,
        1e-4,
    )
    hundred = build_config({**CIFAR100, "method": {"name": "cce"}})
    assert hundred.optimizer.weight_decay == 5e-4
    assert (hundred.optimizer.lr, hundred.optimizer.momentum) == (0.1, 0.9)
    assert hundred.model.name == "resnet44"
    epoch = -(-50_000 // hundred.train.batch_size)
    assert hundred.train.steps == 150 * epoch
    assert hundred.schedule.at == (80 * epoch, 120 * epoch)
    for config in (ten, hundred):
        assert config.data.augment
        assert config.data.hold_out == 0
        assert (config.schedule.name, config.schedule.divide_by) == ("steps", 10)


@pytest.mark.parametrize("rows", [1000, 5000])
def test_short_evaluates_and_saves_at_whole_epochs(rows):
    config = build_config(merged(CIFAR10, short(rows), {"method": {"name": "cce"}}))
    steps = -(-(rows * 9 // 10) // config.train.batch_size)
    assert config.train.epochs == 20
    assert config.train.steps is None
    assert config.train.evaluate_every % steps == 0
    assert config.train.checkpoint_every % steps == 0
    assert config.data.rows == rows
    assert not config.data.augment
