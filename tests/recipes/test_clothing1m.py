from imae.recipes.tables.clothing1m import cells
from imae.train import build_config


def test_the_settings_are_the_papers():
    config = build_config(cells("paper")[0].settings)
    assert (config.train.steps, config.train.batch_size) == (30_000, 84)
    assert (config.optimizer.lr, config.optimizer.weight_decay) == (0.01, 2e-5)
    assert config.schedule.at == (10_000, 15_000)
    assert (config.model.name, config.noise) == ("resnet50", None)


def test_short_trains_on_frozen_features():
    config = build_config(cells("short")[0].settings)
    assert config.data.features == "efficientnet_lite0"
