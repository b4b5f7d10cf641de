"""The objectives in the real libraries, beside their own."""

import math
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.preprocessing import StandardScaler

from imae.curves import CCE, CURVES, GCE, IMAE, MAE, Window
from imae.errors import ArgumentError, DataError
from imae.integrations.boosting import Objective
from imae.noise import symmetric

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

EXTREME = np.array([[60.0, 0, 0], [-60.0, 0, 0], [0, 0, 0], [1e4, -1e4, 0]])
ALL = [*(entry.build() for entry in CURVES), Window(IMAE(T=8.0), low=-4.0, high=4.0)]


@pytest.mark.parametrize("curve", ALL, ids=lambda curve: curve.name)
def test_the_second_derivative_is_positive_and_everything_finite(curve):
    for scores in (EXTREME, EXTREME[:, 0]):
        labels = np.array([0, 0, 1, 1])
        gradient, second = Objective(curve)(labels, scores)
        assert gradient.shape == second.shape == scores.shape
        assert np.isfinite(gradient).all()
        assert np.isfinite(second).all()
        assert (second > 0).all()


@pytest.mark.parametrize("curve", [CCE(), MAE(), GCE(q=0.5), IMAE(T=8.0)], ids=repr)
def test_the_gradient_is_the_derivative_of_the_scaled_value(curve):
    generator = np.random.Generator(np.random.PCG64(1))
    scores, labels = generator.normal(size=(5, 4)), np.array([0, 1, 2, 3, 3])
    gradient, _ = Objective(curve)(labels, scores)
    weights = [
        float(each.weight(torch.tensor([0.25], dtype=torch.float64))) for each in (CCE(), curve)
    ]

    def loss(label, z):
        rest = math.log(sum(math.exp(each) for k, each in enumerate(z) if k != label))
        m = torch.tensor(z[label] - rest, dtype=torch.float64)
        return weights[0] / weights[1] * float(curve.value(m))

    for row in range(5):
        for column in range(4):
            step = np.zeros(4)
            step[column] = 1e-6
            ends = [loss(labels[row], (scores[row] + sign * step).tolist()) for sign in (1, -1)]
            assert gradient[row, column] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7)


def test_the_second_derivative_of_cross_entropy_is_its_own():
    generator = np.random.Generator(np.random.PCG64(2))
    scores, labels = generator.normal(size=(6, 3)), np.array([0, 1, 2, 0, 1, 2])
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    _, second = Objective(CCE(), curvature=1.0)(labels, scores)
    np.testing.assert_allclose(second, p * (1 - p), rtol=1e-9)
    gradient, second = Objective(CCE())(labels % 2, scores[:, 0])
    q = 1 / (1 + np.exp(-scores[:, 0]))
    np.testing.assert_allclose(gradient, q - labels % 2, rtol=1e-9)
    np.testing.assert_allclose(second, q * (1 - q), rtol=1e-9)


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer], ids=["several", "two"])
def test_cross_entropy_is_the_built_in_objective_of_xgboost(load):
    rows, labels = load(return_X_y=True)
    number = int(labels.max()) + 1
    data = xgboost.DMatrix(rows, labels)
    common = {"base_score": 0.5 if number > 2 else 0.0, "max_depth": 3, "nthread": 1}
    if number > 2:
        common["num_class"] = number
    name = "multi:softprob" if number > 2 else "binary:logistic"
    builtin = {**common, "objective": name, **({} if number > 2 else {"base_score": 0.5})}
    expected = xgboost.train(builtin, data, 10).predict(data)
    objective = Objective("cce")
    booster = xgboost.train(common, data, 10, obj=objective)
    found = objective.predict_proba(booster, data)
    np.testing.assert_allclose(found if number > 2 else found[:, 1], expected, atol=1e-4)


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer], ids=["several", "two"])
def test_cross_entropy_is_the_built_in_objective_of_lightgbm(load):
    rows, labels = load(return_X_y=True)
    number = int(labels.max()) + 1
    common = {"boost_from_average": False, "verbose": -1, "num_threads": 1, "num_leaves": 7}
    if number > 2:
        common["num_class"] = number

    def data():
        return lightgbm.Dataset(rows, labels)

    name = "multiclass" if number > 2 else "binary"
    expected = lightgbm.train({**common, "objective": name}, data(), 10).predict(rows)
    objective = Objective("cce", curvature=number / (number - 1) if number > 2 else 1.0)
    booster = lightgbm.train({**common, "objective": objective}, data(), 10)
    found = objective.predict_proba(booster, rows)
    np.testing.assert_allclose(found if number > 2 else found[:, 1], expected, atol=1e-4)


@pytest.fixture(scope="module")
def noisy():
    rows, labels = load_iris(return_X_y=True)
    return rows, symmetric(labels, rate=0.2, num_classes=3, seed=1).labels, labels


@pytest.mark.parametrize(
    "build",
    [
        lambda objective: xgboost.XGBClassifier(objective=objective, n_estimators=20, n_jobs=1),
        lambda objective: lightgbm.LGBMClassifier(
            objective=objective, n_estimators=20, n_jobs=1, verbose=-1
        ),
    ],
    ids=["xgboost", "lightgbm"],
)
def test_the_estimators_of_both_libraries(build, noisy):
    rows, given, labels = noisy
    objective = Objective("imae", T=8.0)
    model = build(objective).fit(rows, given)
    probabilities = objective.predict_proba(model, rows)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (probabilities.argmax(1) == labels).mean() > 0.85
    # Rows of weight 0 do not count, whatever their labels are.
    weight = (given == labels).astype(float)
    weighted = build(Objective("imae", T=8.0)).fit(rows, given, sample_weight=weight)
    assert (objective.predict_proba(weighted, rows).argmax(1) == labels).mean() > 0.95


def test_a_weight_multiplies_both_derivatives():
    scores, labels, weight = np.eye(3), np.array([0, 1, 1]), np.array([1.0, 2.0, 0.5])
    plain = Objective("gce")(labels, scores)
    for one, other in zip(plain, Objective("gce")(labels, scores, weight), strict=True):
        np.testing.assert_allclose(other, one * weight[:, None])


def test_the_automatic_parameter_begins_again_with_every_training(noisy):
    rows, given, _ = noisy
    objective = Objective("imae", T="auto")
    model = xgboost.XGBClassifier(objective=objective, n_estimators=25, n_jobs=1)
    first = objective.predict_proba(model.fit(rows, given), rows)
    assert objective(given, np.zeros((150, 3)))[0].shape == (150, 3)
    np.testing.assert_array_equal(objective.predict_proba(model.fit(rows, given), rows), first)
    assert repr(objective) == "Objective(imae, T='auto')"


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([0, 3], np.zeros((2, 3)), r"class numbers in \[0, 3\)"),
        ([0, 0.5], np.zeros((2, 3)), "class numbers"),
        ([0, -1], np.zeros(2), r"class numbers in \[0, 2\)"),
        ([0, 1, 1], np.zeros((2, 3)), r"labels of shape \(3,\) for scores of shape \(2, 3\)"),
        (["a", "b"], np.zeros(2), r"class numbers in \[0, 2\), got <U1"),
        (np.ma.masked_equal([0, 1], 1), np.zeros(2), "labels: 1 values are masked"),
        ([0, 0], np.zeros((2, 1)), "set num_class"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, scores, message):
    with pytest.raises((DataError, ArgumentError), match=message):
        Objective("cce")(labels, scores)


def test_weights_of_another_number_are_refused():
    for each in (Objective("cce"), Objective("cce").metric):
        with pytest.raises(DataError, match=r"sample_weight: \(3,\) for 2 rows"):
            each([0, 1], np.zeros(2), np.ones(3))


def test_a_curve_without_weight_at_the_start_is_refused():
    labels = np.array([0, 1, 2])
    with pytest.raises(ArgumentError, match="weight 0 at p = 1 / 3"):
        Objective("truncated_gce")(labels, np.zeros((3, 3)))
    Objective("truncated_gce")(labels, 3 * np.eye(3))  # a start of the user's own


@pytest.mark.parametrize("curve", ["imae:T=8", "gce", IMAE(T=8.0)])
@pytest.mark.parametrize("value", [2.0, "auto"])
def test_a_T_that_would_be_ignored_is_refused(curve, value):  # noqa: N802
    with pytest.raises(ArgumentError, match="T belongs to the curve 'imae'"):
        Objective(curve, T=value)


def test_the_default_is_what_was_measured_to_be_best():
    assert repr(Objective()) == "Objective(IMAE(T=8.0))"
    labels, scores = np.array([0, 1, 2]), np.eye(3)
    for one, other in zip(
        Objective()(labels, scores), Objective("imae", T=8)(labels, scores), strict=True
    ):
        np.testing.assert_array_equal(one, other)


FOLDS = [(np.arange(k, 150, 3), np.arange((k + 1) % 3, 150, 3)) for k in range(3)]


def test_each_fold_of_lightgbm_has_its_own_training(noisy):
    rows, given, _ = noisy
    options = {"num_class": 3, "verbose": -1, "num_threads": 1, "metric": "None"}
    objective = Objective("imae", T="auto")
    data = lightgbm.Dataset(rows, given, free_raw_data=False)
    both = {"feval": objective.metric, "return_cvbooster": True}
    folds = lightgbm.cv({**options, "objective": objective}, data, 30, folds=FOLDS, **both)
    for (trained, _), booster in zip(FOLDS, folds["cvbooster"].boosters, strict=True):
        part = lightgbm.Dataset(rows, given, free_raw_data=False).subset(trained)
        alone = lightgbm.train({**options, "objective": Objective("imae", T="auto")}, part, 30)
        np.testing.assert_array_equal(
            booster.predict(rows, raw_score=True), alone.predict(rows, raw_score=True)
        )


def test_each_fold_of_xgboost_has_its_own_training(noisy):
    rows, given, _ = noisy
    options = {"num_class": 3, "nthread": 1, "disable_default_eval_metric": True}
    data, objective = xgboost.DMatrix(rows, given), Objective("imae", T="auto")
    found = xgboost.cv(
        options, data, 30, folds=FOLDS, obj=objective, custom_metric=objective.metric
    )
    losses = []
    for trained, held in FOLDS:
        part = xgboost.DMatrix(rows[trained], given[trained])
        booster = xgboost.train(options, part, 30, obj=Objective("imae", T="auto"))
        p = objective.predict_proba(booster, xgboost.DMatrix(rows[held]))
        losses.append(-np.log(p[np.arange(len(held)), given[held]]).mean())
    assert found["test-log_loss-mean"].iloc[-1] == pytest.approx(np.mean(losses), rel=1e-3)


def test_an_objective_that_is_used_again_begins_again(noisy):
    rows, given, _ = noisy
    start = np.random.Generator(np.random.PCG64(0)).normal(size=(150, 3)) / 10
    objective = Objective("imae", T="auto")
    found = []
    for _ in range(2):
        model = xgboost.XGBClassifier(objective=objective, n_estimators=20, n_jobs=1)
        model.fit(rows, given, base_margin=start)
        found.append(model.predict(rows, output_margin=True))
    np.testing.assert_array_equal(found[0], found[1])
    assert pickle.loads(pickle.dumps(objective)).curve == objective.curve


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
def test_the_metric_of_lightgbm_sees_probabilities(number, noisy):
    rows, given, _ = noisy
    rows, given = rows[given < number], given[given < number]
    objective, seen = Objective("imae"), {}
    options = {"n_estimators": 60, "n_jobs": 1, "verbose": -1, "metric": "None"}
    model = lightgbm.LGBMClassifier(objective=objective, **options)
    stop = lightgbm.early_stopping(5, verbose=False)
    watch = {"eval_metric": objective.metric, "callbacks": [lightgbm.record_evaluation(seen), stop]}
    model.fit(rows[::2], given[::2], eval_set=[(rows[1::2], given[1::2])], **watch)
    (measured,) = seen.values()
    assert list(measured) == ["log_loss"], "LightGBM stops by any metric, and its own are wrong"
    best = model.best_iteration_
    assert best == 1 + int(np.argmin(measured["log_loss"]))
    p = objective.predict_proba(model, rows[1::2])  # of the best iteration
    expected = -np.log(p[np.arange(len(p)), given[1::2]]).mean()
    assert measured["log_loss"][best - 1] == pytest.approx(expected, rel=1e-6)


@pytest.fixture
def weighted():
    """Training rows, held-out rows, and weights of the latter of which most are 0."""
    rows, labels = load_breast_cancer(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    labels = symmetric(labels, rate=0.2, num_classes=2, seed=1).labels
    weight = np.where(np.arange(len(labels[1::2])) < 20, 100.0, 0.0)
    return rows[::2], labels[::2], rows[1::2], labels[1::2], weight


@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
def test_the_metric_weights_the_rows_as_the_built_in_one_of_lightgbm(weighted):
    rows, given, held_rows, held, weight = weighted
    options = {"n_estimators": 30, "n_jobs": 1, "verbose": -1, "boost_from_average": False}
    objective = Objective("cce")
    seen = []
    for kind, metric in (
        ({}, "binary_logloss"),
        ({"objective": objective, "metric": "None"}, objective.metric),
    ):
        model = lightgbm.LGBMClassifier(**options, **kind)
        model.fit(
            rows, given, eval_set=[(held_rows, held)], eval_sample_weight=[weight],
            eval_metric=metric, callbacks=[lightgbm.early_stopping(3, verbose=False)],
        )  # fmt: skip
        seen.append((model.best_iteration_, *model.best_score_["valid_0"].values()))
    assert seen[1] == pytest.approx(seen[0], rel=1e-6)
    native = {"verbose": -1, "num_threads": 1, "boost_from_average": False}
    native |= {"objective": objective, "metric": "None"}
    data = lightgbm.Dataset(rows, given)
    watched = lightgbm.Dataset(held_rows, held, weight=weight, reference=data)
    stop = lightgbm.early_stopping(3, verbose=False)
    booster = lightgbm.train(
        native, data, 30, valid_sets=[watched], feval=objective.metric, callbacks=[stop]
    )
    found = booster.best_iteration, *booster.best_score["valid_0"].values()
    assert found == pytest.approx(seen[0], rel=1e-6)


def test_the_metric_weights_the_rows_as_the_built_in_one_of_xgboost(weighted):
    rows, given, held_rows, held, weight = weighted
    data, watched = xgboost.DMatrix(rows, given), xgboost.DMatrix(held_rows, held, weight=weight)
    objective, seen = Objective("cce"), []
    for change, metric in (
        ({"eval_metric": "logloss"}, {}),
        ({"disable_default_eval_metric": 1}, {"custom_metric": objective.metric}),
    ):
        # XGBoost's own objective is named so that its score starts at 0 for both.
        options = {"nthread": 1, "objective": "binary:logistic", "base_score": 0.5, **change}
        booster = xgboost.train(
            options, data, 30, evals=[(watched, "held")], obj=objective,
            early_stopping_rounds=3, verbose_eval=False, **metric,
        )  # fmt: skip
        seen.append((booster.best_iteration, booster.best_score))
    assert seen[1] == pytest.approx(seen[0], rel=1e-5)


def test_metrics_of_xgboost_see_probabilities(noisy):
    rows, given, _ = noisy
    rows, given = rows[given < 2], given[given < 2]
    objective = Objective("imae")
    model = xgboost.XGBClassifier(objective=objective, n_estimators=20, n_jobs=1)
    model.fit(rows[::2], given[::2], eval_set=[(rows[1::2], given[1::2])], verbose=False)
    p = objective.predict_proba(model, rows[1::2])
    expected = -np.log(p[np.arange(len(p)), given[1::2]]).mean()
    own = model.evals_result()["validation_0"]["logloss"][-1]
    assert own == pytest.approx(expected, rel=1e-5)
    data = [xgboost.DMatrix(rows[i::2], given[i::2]) for i in (0, 1)]
    options, seen = {"nthread": 1, "objective": "binary:logistic", "eval_metric": "logloss"}, {}
    watch = {"evals": [(data[1], "held")], "evals_result": seen, "verbose_eval": False}
    native = xgboost.train(options, data[0], 20, obj=objective, **watch)
    assert seen["held"]["logloss"][-1] == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(native.predict(data[1]), p[:, 1], rtol=1e-5)
    np.testing.assert_allclose(objective.predict_proba(native, data[1]), p, rtol=1e-5)
    options = {"nthread": 1, "disable_default_eval_metric": 1}
    native = xgboost.train(
        options, data[0], 20, obj=objective, custom_metric=objective.metric, **watch
    )
    p = objective.predict_proba(native, data[1])
    expected = -np.log(p[np.arange(len(p)), given[1::2]]).mean()
    assert seen["held"]["log_loss"][-1] == pytest.approx(expected, rel=1e-5)


def test_wrong_options_are_refused():
    with pytest.raises(ArgumentError, match="curvature"):
        Objective("cce", curvature=0.0)
    with pytest.raises(ArgumentError, match="nonsense"):
        Objective("nonsense")


def test_the_published_table_is_made_of_its_records(monkeypatch):
    root = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(root / "benchmarks")
    import boosting

    folder = root / "results" / "boosting"
    assert boosting.table(folder) == (folder / "accuracy.md").read_text()
    sys.modules.pop("boosting")


def test_rows_without_weight_do_not_steer_t():
    draws = np.random.default_rng(1)
    labels = np.arange(300) % 3
    raw = 3 * np.eye(3)[labels] + draws.normal(size=(300, 3))
    weight = (np.arange(300) % 4 > 0).astype(float)
    given = np.where(weight == 0, (labels + 1) % 3, labels)
    given[:30] = (given[:30] + 2) % 3
    kept = weight > 0
    some, plain = Objective(T="auto"), Objective(T="auto")
    for _ in range(5):
        weighted = some(given, raw, weight)[0]
        expected = plain(given[kept], raw[kept])[0]
    assert np.allclose(weighted[kept], expected)
    assert not weighted[~kept].any()
