import pytest

from imae.errors import ArgumentError
from imae.models.network import model_for
from imae.train.rows import prepare
from imae.train.setup import method_arguments, resolved


def test_nothing_is_left_open(configure):
    config = configure(
        model={"name": None},
        train={"epochs": None, "batch_size": None},
    )
    full = resolved(config, prepare(config))
    assert full.model.name == "small_cnn"
    assert full.train.epochs == 40
    assert full.train.batch_size == 64


def test_what_is_given_stays(configure):
    config = configure(model={"name": "mlp"}, train={"epochs": None, "steps": 9, "batch_size": 65})
    full = resolved(config, prepare(config))
    assert (full.train.epochs, full.train.steps, full.train.batch_size) == (None, 9, 65)
    assert full.model.name == "mlp"


def test_methods_learn_the_number_of_classes(configure):
    config = configure(method={"name": "forward_symmetric", "arguments": {"rate": 0.2}})
    assert method_arguments(config, 3) == {"rate": 0.2, "num_classes": 3}


def test_a_batch_beyond_the_data_is_refused(configure):
    config = configure(train={"batch_size": 66})
    with pytest.raises(ArgumentError, match="66 is more than the 65 rows"):
        resolved(config, prepare(config))


@pytest.mark.parametrize(
    ("shape", "rows", "name"),
    [
        ((5,), 10, "mlp"),
        ((255,), 10, "mlp"),
        ((256,), 1279, "linear"),
        ((256,), 1280, "mlp"),
        ((4096,), 50_000, "mlp"),
        ((4097,), 50_000, "linear"),
        ((1, 23, 23), 10, "small_cnn"),
        ((3, 24, 24), 10, "resnet20"),
        ((3, 95, 95), 10, "resnet20"),
        ((3, 96, 96), 10, "resnet50"),
    ],
)
def test_the_network_suits_the_inputs(shape, rows, name):
    assert model_for(shape, rows) == name


def test_a_matrix_is_kept_by_its_numbers_and_not_by_its_file(configure, tmp_path):
    path = tmp_path / "T.csv"
    path.write_text("0.8,0.1,0.1\n0,1,0\n0,0,1\n")
    config = configure(method={"name": "forward", "arguments": {"matrix": str(path)}})
    found = method_arguments(config, 3)
    assert found["matrix"] == [[0.8, 0.1, 0.1], [0, 1, 0], [0, 0, 1]]
