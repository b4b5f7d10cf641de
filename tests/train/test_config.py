import pytest
from pydantic import ValidationError

from imae.train.config import Config, ScheduleConfig, TrainConfig, known_settings


def config(**settings):
    return Config(**{"data": {"name": "digits"}, **settings})


def test_the_papers_settings_can_be_said():
    paper = config(
        seed=123,
        noise="symmetric:0.4",
        model={"name": "resnet56"},
        method={"name": "imae", "arguments": {"T": 8}},
        train={"steps": 100_000, "batch_size": 128, "evaluate_every": 1000},
        optimizer={"name": "adam", "lr": 1e-3, "delta": 0.1, "weight_decay": 1e-4},
        schedule={"name": "steps", "every": 10_000, "divide_by": 2},
    )
    assert paper.schedule.divide_by == 2
    assert paper.noise == "symmetric:0.4"


def test_every_setting_is_explained():
    assert all(setting.meaning for setting in known_settings())


def test_it_is_frozen_and_survives_json():
    written = config(schedule={"name": "steps", "at": [3, 5]}, log=["csv"])
    assert Config.model_validate(written.model_dump(mode="json")) == written
    with pytest.raises(ValidationError, match="frozen"):
        written.seed = 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": -1}, "greater than or equal to 0"),
        ({"noise": "symetric:0.4"}, "did you mean symmetric"),
        ({"noise": "symmetric:1"}, r"rate must be in \[0, 1\)"),
        ({"noise_exact": True}, "need noise"),
        ({"model": {"name": "resnet21"}}, "did you mean resnet"),
        ({"method": {"name": "imea"}}, "did you mean imae"),
        ({"method": {"name": "gce", "arguments": {"q": 2}}}, "q must be in"),
        ({"method": {"name": "gce", "arguments": {"q": "x"}}}, "gce"),
        ({"train": {"epochs": 1, "steps": 1}}, "epochs or steps, not both"),
        ({"train": {"average": 1.0}}, "less than 1"),
        ({"optimizer": {"lr": 0}}, "greater than 0"),
        ({"optimizer": {"lr": float("nan")}}, "finite"),
        ({"schedule": {"name": "steps"}}, "`at` or `every` must be given"),
        ({"schedule": {"name": "cosine", "at": [1]}}, "for no other"),
        ({"schedule": {"name": "steps", "at": [1], "every": 1}}, "not both"),
        ({"schedule": {"name": "one_cycle", "warm_up": 1}}, "includes a warm-up"),
        ({"machine": {"devices": 0}}, "greater than or equal to 1"),
        ({"machine": {"strategy": "fsdp", "channels_last": True}}, "channels_last needs"),
        ({"machine": {"strategy": "fsdp", "precision": "16-mixed"}}, "16-mixed needs"),
        ({"noise": "symmetric:0.4", "data": {"name": "x", "labels": "y"}}, "give only one of them"),
        ({"log": ["paper"]}, "csv"),
    ],
)
def test_values_out_of_range_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        config(**settings)


def test_values_just_inside_are_taken():
    config(seed=0, noise="symmetric:0", model={"name": "package.module:network"})
    config(machine={"strategy": "fsdp", "precision": "bf16-mixed"})
    TrainConfig(average=0.5, clip=1e-9, epochs=1)
    ScheduleConfig(name="steps", every=1, divide_by=1.01)
