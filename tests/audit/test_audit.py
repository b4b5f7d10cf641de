"""A whole audit, from runs, probabilities and features."""

import time
from dataclasses import replace

import numpy as np
import pandas
import pytest
import scipy.sparse
import torch
from torch.utils.data import TensorDataset

from imae._draws import seeded
from imae.audit import Audit, audit
from imae.audit.audit import _judge
from imae.audit.evidence import Evidence, likely_classes
from imae.audit.sources import features_of_rows
from imae.data import load
from imae.errors import ArgumentError, DataError, ImaeError
from imae.records import EpochDynamics, RunFolder, RunLabels
from imae.train import build_config, train


def blobs(rate, *, num_rows=600, num_classes=4, seed=1, spread=0.35):
    """Features around class centres, labels of which a part is wrong, and a fair posterior."""
    draws = seeded(seed)
    clean = draws.integers(0, num_classes, num_rows)
    features = np.eye(num_classes)[clean] + spread * draws.normal(size=(num_rows, num_classes))
    given = np.where(
        draws.random(num_rows) < rate,
        (clean + draws.integers(1, num_classes, num_rows)) % num_classes,
        clean,
    )
    likelihood = np.exp(features / spread**2)
    return features, given, clean, likelihood / likelihood.sum(1, keepdims=True)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_the_rate_from_a_fair_posterior_is_near_the_truth(rate):
    _, given, clean, posterior = blobs(rate, num_rows=3000)
    found = audit(posterior, given=given)
    truth = (given != clean).mean()
    assert found.noise_rate == pytest.approx(truth, abs=0.02)
    assert found.noise_rate_low - 0.01 <= truth <= found.noise_rate_high


def test_flagged_and_suggested_rows_are_mostly_right():
    _, given, clean, posterior = blobs(0.2)
    found = audit(posterior, given=given)
    wrong = given != clean
    assert wrong[found.is_flagged].mean() > 0.85
    assert found.is_flagged[wrong].mean() > 0.8
    changed = found.suggested != given
    assert (found.suggested == clean)[changed].mean() > 0.9
    assert (found.suggested == clean).mean() > (given == clean).mean()


@pytest.mark.parametrize("precision", [None, 0.99])
def test_a_label_that_is_believed_is_its_own_suggestion(precision):
    _, given, _, posterior = blobs(0.3, spread=0.7)  # some that are not flagged are likely wrong
    found = audit(posterior, given=given, precision=precision)
    believed = found.mask()
    assert (found.wrong_probability[believed] > 0.5).any() or precision is None
    assert (found.suggested == given)[believed].all()
    certainty = found.suggested_probability[believed]
    assert certainty == pytest.approx(1 - found.wrong_probability[believed])
    assert (found.suggested != given)[found.is_flagged].all()


def test_the_probability_of_being_wrong_is_calibrated_and_never_falls_in_the_suspicion():
    _, given, clean, posterior = blobs(0.3, num_rows=6000)
    found = audit(posterior, given=given)
    wrong = (given != clean)[found.order()]
    ordered = found.wrong_probability[found.order()]
    assert (np.diff(ordered) <= 1e-12).all()
    for part in np.array_split(np.arange(len(wrong)), 6):
        assert ordered[part].mean() == pytest.approx(wrong[part].mean(), abs=0.06)


def test_precision_flags_as_many_rows_as_keep_the_estimate():
    _, given, _, posterior = blobs(0.3, num_rows=3000, spread=0.6)
    strict, loose = (audit(posterior, given=given, precision=each) for each in (0.95, 0.7))
    assert 0 < strict.is_flagged.sum() < loose.is_flagged.sum()
    assert strict.wrong_probability[strict.is_flagged].mean() >= 0.95
    with pytest.raises(ArgumentError, match="precision"):
        audit(posterior, given=given, precision=0)


def test_features_only_find_wrong_labels():
    features, given, clean, _ = blobs(0.2)
    found = audit(given=given, features=features)
    wrong = given != clean
    assert found.suspicion[wrong].mean() > found.suspicion[~wrong].mean() + 0.4
    assert found.is_flagged[wrong].mean() > 0.7


def test_features_beside_probabilities_help():
    features, given, clean, posterior = blobs(0.3, num_rows=1500)
    draws = seeded(2)
    poor = posterior**0.3 * draws.dirichlet(np.ones(4), len(given))
    poor /= poor.sum(1, keepdims=True)
    wrong = given != clean

    def hits(found):
        return wrong[found.order()[: wrong.sum()]].mean()

    assert hits(audit(poor, given=given, features=features)) > hits(audit(poor, given=given)) + 0.05


@pytest.mark.parametrize(("rate", "num_rows"), [(0.0, 3000), (0.2, 3000), (0.2, 900)])
def test_the_rate_with_features_is_near_the_truth(rate, num_rows):
    features, given, clean, posterior = blobs(rate, num_rows=num_rows, spread=0.45)
    found = audit(posterior, given=given, features=features)
    assert found.noise_rate == pytest.approx((given != clean).mean(), abs=0.03)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    config = {
        "data": {"name": "digits", "planted": 0.05},
        "noise": "symmetric:0.2",
        "model": {"name": "mlp"},
        "train": {"epochs": 10},
        "out": str(path),
    }
    train(build_config(config))
    return RunFolder(path)


def test_every_row_of_the_data_is_in_the_result_once_under_its_given_label(run):
    found = audit(run)
    labels, held = run.labels(), run.held_labels()
    assert len(set(found.row_ids)) == len(found.row_ids)
    assert set(found.row_ids) == set(labels.row_ids) | set(held.row_ids)
    expected = dict(zip(labels.row_ids, labels.given, strict=True))
    expected |= dict(zip(held.row_ids, held.given, strict=True))
    assert [expected[row_id] for row_id in found.row_ids] == found.given.tolist()


def test_results_are_in_the_order_of_the_data(run):
    """So that a mask fits the rows: held-out and planted ones come from between the others."""
    assert audit(run).row_ids.tolist() == load("digits").train.row_ids.tolist()


def test_rows_from_python_are_judged_in_their_order():
    features, given, clean, _ = blobs(0.2, num_rows=600, spread=0.3)
    found = audit((features, given), settings={"train": {"epochs": 5}})
    assert found.row_ids.tolist() == [str(row) for row in range(600)]
    assert found.given.tolist() == given.tolist()
    assert (given != clean)[found.is_flagged].mean() > 0.8


def test_a_run_of_an_earlier_version_says_that_its_order_is_another(run, tmp_path):
    old = RunFolder(tmp_path)
    old.write_config({"data": {"name": "digits"}})
    old.write_labels(*(replace(each, position=None) for each in (run.labels(), run.held_labels())))
    for epoch in run.epochs():
        old.write_dynamics(epoch, run.dynamics(epoch), run.held_dynamics(epoch))
    with pytest.warns(UserWarning, match="held-out rows come last"):
        found = audit(old)
    held = run.held_labels().row_ids.tolist()
    assert found.row_ids[-len(held) :].tolist() == held
    new = audit(run)
    order = [new.row_ids.tolist().index(row_id) for row_id in found.row_ids.tolist()]
    np.testing.assert_allclose(new.suspicion[order], found.suspicion)


def test_an_audit_of_a_run_finds_its_noise(run):
    found = audit(run.path)
    wrong = found.given != found.clean
    assert wrong[found.is_flagged].mean() > 0.8
    assert found.noise_rate == pytest.approx(wrong.mean(), abs=0.05)
    assert found.transition.sum(1) == pytest.approx(np.ones(10))
    is_held = np.isin(found.row_ids, run.held_labels().row_ids)
    assert found.suspicion[is_held & wrong].mean() > 0.6


def test_a_run_of_an_earlier_version_without_held_labels_is_audited_on_its_training_rows(
    run, tmp_path
):
    old = RunFolder(tmp_path)
    labels = run.labels()
    old.write_config({"data": {"name": "digits"}})
    old.write_labels(RunLabels(labels.row_ids, labels.given, labels.class_names, labels.clean))
    for epoch in run.epochs():
        old.write_dynamics(epoch, run.dynamics(epoch))
    assert len(audit(old)) == len(labels.given)


def test_an_audit_of_a_student_names_the_run_whose_predictions_are_its_labels(run, tmp_path):
    teacher, student = RunFolder(tmp_path / "my run"), RunFolder(tmp_path / "student")
    teacher.write_config({"data": {"name": "digits"}})
    data = {"name": "digits", "labels": str(teacher.path / "student.csv")}
    student.write_config({"data": data})
    student.write_labels(run.labels())
    for epoch in run.epochs():
        student.write_dynamics(epoch, run.dynamics(epoch))
    with pytest.warns(UserWarning, match="its labels are predictions of the run .*/my run'$"):
        audit(student)
    student.write_config({"data": {**data, "labels": str(tmp_path / "student.csv")}})
    audit(student)  # a file of the user's with the same name


def test_a_run_without_dynamics_is_refused(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_labels(RunLabels(np.array(["a"]), np.array([0]), np.array(["x", "y"])))
    with pytest.raises(DataError, match="no dynamics"):
        audit(folder)


def test_dynamics_of_other_rows_are_refused(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_labels(RunLabels(np.array(["a"]), np.array([0]), np.array(["x", "y"])))
    shown = np.zeros(2, np.float32)
    folder.write_dynamics(1, EpochDynamics(shown, np.zeros(2, np.int32), shown))
    with pytest.raises(DataError, match="2 rows, the run 1 labels"):
        audit(folder)


@pytest.mark.parametrize("other", [0, 1])
def test_a_network_that_predicts_one_class_for_every_row_judges_nothing(tmp_path, other):
    folder = RunFolder(tmp_path)
    folder.write_config({"data": {"name": "digits"}})
    ids, given = np.array(["a", "b", "c", "d"]), np.array([0, 1, 0, 1])
    folder.write_labels(RunLabels(ids, given, np.array(["x", "y"])))
    predicted = np.array([0, other, 0, other], np.int32)
    margin = np.where(predicted == given, 2.0, -2.0).astype(np.float32)
    folder.write_dynamics(1, EpochDynamics(margin, predicted, np.ones(4, np.float32)))
    if other == 1:
        assert len(audit(folder)) == 4
    else:
        with pytest.raises(DataError, match=r"predicts .x. for every row.*--loss cce"):
            audit(folder)


def test_a_rare_class_that_was_given_up_is_named_with_what_brings_it_back(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_config({"data": {"name": "digits"}, "train": {"batch_size": 8}})
    given = np.array([0] * 40 + [1] * 3)
    folder.write_labels(RunLabels(np.arange(43).astype(str), given, np.array(["x", "y"])))
    ones = np.ones(43, np.float32)
    folder.write_dynamics(1, EpochDynamics(ones, np.zeros(43, np.int32), ones))
    with pytest.raises(DataError, match=r"--set data.balanced=3 --set train.batch_size=6"):
        audit(folder)


@pytest.mark.parametrize(
    ("probabilities", "given", "message"),
    [
        (np.full((2, 2), 0.6), [0, 1], "sum to 1"),
        (np.array([[1.5, -0.5]]), [0], "at least 0 and sum to 1, one is -0.5"),
        (np.full((2, 2), np.nan), [0, 1], "sum to 1"),
        (np.full((2, 2), 0.5), [0], "shape"),
        (np.full((3, 2), 0.5), [0, 1, 2], r"given has 3 classes \(0, 1, 2\) that are not numbers"),
        (
            np.full((2, 2), 0.5),
            [0.5, 1.0],
            "given: row '0': label 0.5 is neither a name nor a whole",
        ),
        (np.full((2, 2), 0.5), ["a", None], "given: row '1': the label is missing"),
        (np.array([[1, 0]]), [0], "decimal"),
        (np.full((4, 2), 0.5), [0, 1, 0, 1], "equal for all rows: they say nothing"),
        (np.array([[0.2, 0.8]]), [1], "one row cannot be compared with others; give more"),
    ],
)
def test_probabilities_that_are_none_are_refused(probabilities, given, message):
    with pytest.raises(DataError, match=message):
        audit(probabilities, given=np.array(given))


def test_what_is_missing_or_too_much_is_named(run):
    with pytest.raises(ArgumentError, match="given"):
        audit(np.full((2, 2), 0.5))
    with pytest.raises(ArgumentError, match="give a run"):
        audit(None, given=np.array([0, 1]))
    for unused in ({"given": np.array([0, 1])}, {"cap": 0.5}, {"settings": {}}, {"model": 1}):
        with pytest.raises(ArgumentError, match="leave them out"):
            audit(run, **unused)
    likely, given = np.eye(2) * 0.8 + 0.1, np.array([0, 1])
    with pytest.raises(ArgumentError, match="nothing is trained here"):
        audit(likely, given=given, settings={"seed": 2})
    with pytest.raises(ArgumentError, match="cap is that of a model"):
        audit(None, given=given, features=np.eye(2), cap=0.5)
    for source in (likely, None):
        for features in (np.eye(3), np.eye(1), np.ones(2)):
            with pytest.raises(DataError, match=r"features must be of shape \(2, F\), got \("):
                audit(source, given=given, features=features)
    with pytest.raises(DataError, match=r"nothing: is not a run; to train on data"):
        audit(run.path / "nothing", settings={"seed": 2})
    with pytest.raises(DataError, match=r"not here: is not a run; .*: imae audit '.*/not here'$"):
        audit(run.path / "not here")


def test_a_row_far_from_all_classes_fits_none():
    features, given, _, _ = blobs(0.0, num_rows=400, spread=0.1)
    odd = np.full((8, 4), 0.5) + 0.01 * seeded(3).normal(size=(8, 4))
    features = np.concatenate([features, odd])
    given = np.concatenate([given, np.zeros(8, np.int64)])
    posterior = np.exp(features * 8)
    posterior /= posterior.sum(1, keepdims=True)
    posterior[-8:] = [0.1, 0.3, 0.3, 0.3]
    found = audit(posterior, given=given)
    assert found.fits_no_class[-8:].all()
    assert not found.fits_no_class[:-8].any()


@pytest.mark.slow
@pytest.mark.parametrize("classes", [(1, 2, 3), (0, 2, 5)])
def test_numbers_that_are_names_of_classes_are_names(classes):
    """As ``classes_`` of a classifier; which of the labels occur makes no difference."""
    right = np.arange(120) % 3
    given = np.where(np.arange(120) < 20, (right + 1) % 3, right)
    labels, probabilities = np.array(classes)[given], 0.05 + 0.85 * np.eye(3)[right]
    whole = audit(probabilities, given=labels, class_names=classes)
    assert np.array_equal(whole.given, given)
    some = given < 2  # no row of the last class
    assert np.array_equal(
        audit(probabilities[some], given=labels[some], class_names=classes).given, given[some]
    )


def test_a_data_set_may_have_a_folder_of_its_own():
    class Rows(TensorDataset):
        folder = "photos"

    x = torch.randn(400, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    assert len(audit(Rows(x, y), settings={"train": {"epochs": 2}}).given) == 400


@pytest.mark.filterwarnings("ignore:2 of 4 classes are hardly ever predicted")
def test_held_out_rows_of_classes_that_are_never_predicted_do_not_judge():
    given = np.arange(200) % 4
    predicted = np.where(given < 2, given, 0)
    classes = likely_classes(0.001 + 0.996 * np.eye(4)[predicted])
    evidence = Evidence(
        row_ids=np.arange(200).astype(str),
        given=given,
        class_names=tuple("abcd"),
        disbelief=(predicted != given) * 0.9,
        classes=classes,
        beliefs=classes,
        is_unseen=(given >= 2) & (np.arange(200) < 100),
    )
    with pytest.warns(UserWarning, match="no row of a class that is predicted was held out"):
        found = _judge(evidence, None, None)
    assert np.isfinite(found.wrong_probability).all()


def test_a_million_rows_of_a_hundred_classes_take_less_than_ten_seconds():
    draws = seeded(1)
    given = draws.integers(0, 100, 1_000_000)
    probabilities = draws.random((1_000_000, 100), dtype=np.float32)
    probabilities[np.arange(1_000_000), given] += 50 * (draws.random(1_000_000) < 0.8)
    probabilities /= probabilities.sum(1, keepdims=True)
    began = time.process_time()
    audit(probabilities, given=given)
    assert time.process_time() - began < 10


@pytest.mark.filterwarnings("ignore:only .* rows were not trained on")
def test_equal_rows_of_a_run_with_different_labels_are_a_group(tmp_path):
    features, given, _, _ = blobs(0.0, num_rows=80)
    features[7], given[7] = features[3], (given[3] + 1) % 4
    features[20], given[20] = features[30], given[30]  # one label: no group
    np.savez(tmp_path / "rows.npz", features=features, labels=given)
    config = {"data": {"name": str(tmp_path / "rows.npz")}, "train": {"epochs": 5}}
    run = train(build_config({**config, "out": str(tmp_path / "run")}))
    found = audit(run.path)
    groups = dict(zip(found.row_ids.tolist(), found.group.tolist(), strict=True))
    assert groups["3"] == groups["7"] == 0
    assert sum(group >= 0 for group in groups.values()) == 2
    (tmp_path / "rows.npz").unlink()
    assert (audit(run.path).group == -1).all()


@pytest.mark.parametrize("has_features", [False, True])
def test_labels_of_a_class_that_the_network_gave_up_are_not_flagged_for_that(has_features):
    features, given, clean, posterior = blobs(0.1, num_rows=1200)
    posterior[:, 0] = 0  # class 0 is never predicted
    posterior /= posterior.sum(1, keepdims=True)
    options = {"features": features} if has_features else {}
    with pytest.warns(UserWarning, match=r"1 of 4 classes .* \(0\)"):
        found = audit(posterior, given=given, **options)
    is_right = (given == 0) & (clean == 0)
    assert found.is_flagged[is_right].mean() < 0.05
    assert found.is_flagged[(given != 0) & (given != clean)].mean() > 0.7


def test_wrong_labels_of_a_class_that_is_never_predicted_are_found_by_their_neighbours():
    features, given, clean, posterior = blobs(0.05, num_rows=1200)
    is_made_up = seeded(4).random(len(given)) < 0.1  # a fifth class has wrong labels only
    given = np.where(is_made_up, 4, given)
    posterior = np.concatenate([posterior, np.zeros((len(given), 1))], axis=1)
    with pytest.warns(UserWarning, match=r"1 of 5 classes .* \(4\)"):
        found = audit(posterior, given=given, features=features)
    assert np.median(found.suspicion[is_made_up]) > np.quantile(found.suspicion[~is_made_up], 0.9)
    assert found.noise_rate > 1.3 * (given != clean)[~is_made_up].mean()  # they count in the rate


def test_a_network_that_learnt_nothing_is_refused():
    with pytest.raises(DataError, match="any class"):
        audit(np.eye(4)[2 + np.arange(20) % 2], given=np.arange(20) % 2)


@pytest.mark.parametrize("kind", [list, torch.tensor])
def test_lists_and_tensors_are_taken(kind):
    features, given, _, posterior = blobs(0.1, num_rows=200)
    expected = audit(posterior, given=given, features=features).suspicion
    arguments = (posterior, given, features)
    one, two, three = (
        each.tolist() if kind is list else torch.from_numpy(each) for each in arguments
    )
    np.testing.assert_allclose(audit(one, given=two, features=three).suspicion, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row_ids": ["a"] * 6}, "row_ids: 'a' appears 6 times"),
        ({"class_names": ("a", "b", "a")}, "class_names: 'a' appears 2 times"),
        ({"row_ids": ["a"]}, "1 ids for 6 rows"),
    ],
)
def test_names_that_are_not_distinct_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        audit(np.eye(3)[[0, 1, 2] * 2], given=np.array([0, 1, 2] * 2), **change)


def test_ids_may_be_numbers(tmp_path):
    found = audit(np.eye(2)[[0, 1]], given=np.array([0, 1]), row_ids=np.array([7, 8]))
    found.save(RunFolder(tmp_path))
    assert Audit.load(RunFolder(tmp_path)).row_ids.tolist() == ["7", "8"]


def test_one_row_has_no_neighbours_and_bytes_are_no_rows():
    with pytest.raises(DataError, match="no neighbours"):
        audit(None, given=np.array([0]), features=np.ones((1, 3)))
    with pytest.raises(ArgumentError, match="got bytes"):
        audit(b"runs", given=np.array([0]))


def labelled_blobs(num_rows=240):
    """Rows of two clear classes, and whether the label of each is wrong."""
    draws = seeded(3)
    clean = np.arange(num_rows) % 2
    is_wrong = draws.random(num_rows) < 0.1
    rows = (4.0 * clean[:, None] + draws.normal(size=(num_rows, 3))).astype(np.float32)
    return rows, np.where(is_wrong, 1 - clean, clean), is_wrong


@pytest.mark.filterwarnings("ignore:only .* rows were not trained on")
@pytest.mark.parametrize("kind", ["arrays", "frame", "dataset", "module"])
def test_rows_from_python_are_trained_on_and_audited(kind):
    rows, given, is_wrong = labelled_blobs()
    settings = {"train": {"epochs": 6, "batch_size": 32}, "machine": {"threads": 1}}
    source, model = (rows, given), None
    if kind == "frame":
        source = (pandas.DataFrame(rows, columns=["a", "b", "c"]), given)
    elif kind == "dataset":
        source = TensorDataset(torch.from_numpy(rows), torch.from_numpy(given))
    elif kind == "module":
        torch.manual_seed(1)
        model = torch.nn.Linear(3, 2)
    found = audit(source, model=model, settings=settings)
    assert len(found) == len(rows)
    flagged = found.row_ids[found.order()[: is_wrong.sum()]].astype(int)
    assert is_wrong[flagged].mean() > 0.8


@pytest.mark.filterwarnings("ignore:only .* rows were not trained on")
def test_a_frame_with_words_and_empty_cells_is_audited():
    rows, given, is_wrong = labelled_blobs()
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"])
    frame["colour"] = ["red", None, "blue"] * 80
    frame["label"] = 2 * given - 1
    config = build_config({"train": {"epochs": 6}, "data": {"name": "mine"}})
    found = audit(frame, settings=config)
    assert found.class_names == ("-1", "1")
    assert is_wrong[found.order()[: is_wrong.sum()]].mean() > 0.8


@pytest.mark.filterwarnings("ignore:only .* rows were not trained on")
def test_features_of_rows_from_python_are_compared(tmp_path):
    pytest.importorskip("wordllama")
    texts = ["a fine film", "a dull film", "it was fine", "it was dull"] * 15
    settings = {"data": {"features": "wordllama"}, "train": {"epochs": 3}}
    asked = {**settings, "machine": {"threads": 1}, "out": str(tmp_path / "run")}
    rows = [texts, ["good", "bad"] * 30]
    found = audit(rows, settings=asked)
    features = features_of_rows(rows, RunFolder(tmp_path / "run"))
    assert len(features) == len(found)
    np.testing.assert_array_equal(features[0], features[4])
    alone = audit(tmp_path / "run")  # the texts are gone: judged by the run only
    np.testing.assert_array_equal(found.row_ids, alone.row_ids)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (lambda y: 2 * y - 1, ("-1", "1")),
        (lambda y: y + 1, ("1", "2")),
        (lambda y: y == 1, ("False", "True")),
        (lambda y: y.astype(float), ("0", "1")),
        (lambda y: pandas.Series(np.where(y, "dog", "cat")), ("cat", "dog")),
    ],
)
def test_labels_of_probabilities_are_classes_in_sorted_order(labels, names):
    _, given, is_wrong = labelled_blobs()
    likely = 0.1 + 0.8 * np.eye(2)[np.where(is_wrong, 1 - given, given)]
    expected = audit(likely, given=given)
    found = audit(pandas.DataFrame(likely), given=labels(given))
    assert found.class_names == names
    np.testing.assert_array_equal(found.suspicion, expected.suspicion)
    np.testing.assert_array_equal(found.given, expected.given)
    named = audit(likely, given=given, class_names=np.array(["x", "y"]))  # classes_ of a model
    assert named.class_names == ("x", "y")
    if names != ("0", "1"):  # which are class numbers whatever the classes are called
        swapped = audit(likely[:, ::-1], given=labels(given), class_names=names[::-1])
        np.testing.assert_array_equal(swapped.given, 1 - expected.given)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda p, y: audit((p, y), class_names=["a", "b"]),
            "class_names and cap are for probabil",
        ),
        (lambda p, y: audit((p, y), row_ids=y), "got tuple; rows to train on bring their labels"),
        (
            lambda p, y: audit((p, y), settings="fast"),
            "settings must be a mapping or a Config, got",
        ),
        (
            lambda p, y: audit(p, given=np.ma.masked_equal(y, 0)),
            "given: 120 values are masked, the",
        ),
        (lambda p, y: audit(np.ma.masked_less(p, 0.5), given=y), "probabilities: 240 values are m"),
        (
            lambda p, y: audit(None, given=y, features=np.ma.masked_less(p, 0.5)),
            "features: 240 val",
        ),
        (
            lambda p, y: audit(None, given=y, features=scipy.sparse.csr_matrix(p)),
            "features must not be sparse; give its toarray",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(call, message):
    given = np.arange(240) % 2
    with pytest.raises(ImaeError, match=message):
        call(0.1 + 0.8 * np.eye(2)[given], given)


@pytest.mark.filterwarnings("ignore:only .* rows were not trained on")
def test_a_run_object_is_its_folder(tmp_path):
    rows, given, _ = labelled_blobs(60)
    run = train({"train": {"epochs": 1}, "out": str(tmp_path / "run")}, data=(rows, given))
    np.testing.assert_array_equal(audit(run).suspicion, audit(tmp_path / "run").suspicion)


def test_few_rows_that_were_not_trained_on_leave_a_wide_range(run, tmp_path):
    """Three held-out rows that are all contradicted are no share of 99.7%."""
    few = RunFolder(tmp_path)
    few.write_config({"data": {"name": "digits"}})
    held, is_kept = run.held_labels(), np.zeros(len(run.held_labels().given), bool)
    last = run.held_dynamics(run.epochs()[-1])
    is_kept[np.flatnonzero(last.predicted != held.given)[:3]] = True
    kept = RunLabels(held.row_ids[is_kept], held.given[is_kept], held.class_names)
    few.write_labels(replace(run.labels(), position=None, planted=None), kept)
    for epoch in run.epochs():
        each = run.held_dynamics(epoch)
        cut = EpochDynamics(each.margin[is_kept], each.predicted[is_kept], each.weight[is_kept])
        few.write_dynamics(epoch, run.dynamics(epoch), cut)
    with (
        pytest.warns(UserWarning, match="only 3 rows were not trained on"),
        pytest.warns(UserWarning, match="held-out rows come last"),
    ):
        found = audit(few)
    assert found.noise_rate < 0.3
    assert found.noise_rate_low < 0.05
    assert found.noise_rate_high > 0.6
