from imae.recipes.tables.cifar10 import cnn8_cells as cells
from imae.train import build_config


def test_the_protocol_of_the_literature():
    config = build_config(cells("paper")[0].settings)
    assert (config.model.name, config.train.epochs, config.train.batch_size) == ("cnn8", 120, 128)
    assert (config.train.clip, config.schedule.name) == (5.0, "cosine")
    assert (config.optimizer.lr, config.optimizer.weight_decay) == (0.01, 1e-4)
