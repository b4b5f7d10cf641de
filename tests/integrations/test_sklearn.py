"""The scikit-learn estimators, by scikit-learn's own checks and in its tools."""

import math
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas
import polars
import pytest
import scipy.sparse
import sklearn
import torch
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits, load_iris, load_wine, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import check_param_validation, parametrize_with_checks

from imae._draws import seeded
from imae.audit.calibrate import stretched
from imae.curves import GCE
from imae.errors import DataError
from imae.integrations.sklearn import IMAEClassifier, LabelAuditor
from imae.noise import symmetric

# Short trainings here are meant to be short.
pytestmark = pytest.mark.filterwarnings("ignore:training ended after max_iter")
FAST = IMAEClassifier(max_iter=20, random_state=0)


@parametrize_with_checks([FAST, LabelAuditor(auditor=clone(FAST).set_params(max_iter=3))])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API")
def test_scikit_learns_checks_with_short_trainings(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        IMAEClassifier(),
        LabelAuditor(),
        LabelAuditor(LogisticRegression()),
        LabelAuditor(LogisticRegression(), action="relabel", auditor=FAST),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API")
def test_scikit_learns_checks_with_the_defaults(estimator, check):
    check(estimator)


# Says which checks did not pass; none is expected to fail.
CHECKS = """
import sys, warnings
warnings.simplefilter("ignore")
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator
from imae.integrations.sklearn import IMAEClassifier, LabelAuditor
for estimator in (IMAEClassifier(), LabelAuditor(), LabelAuditor(LogisticRegression())):
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    assert len(results) > 40
    print(sklearn.__version__, *[each["check_name"] for each in results
                                 if each["status"] not in ("passed", "skipped")])
"""


@pytest.mark.slow
def test_the_oldest_scikit_learn_that_is_supported(tmp_path):
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, str(tmp_path), "scikit-learn==1.6.1"], check=True)
    path = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", path + CHECKS], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["1.6.1"] * 3, done.stderr


@pytest.fixture(scope="module")
def noisy():
    """Digits of which 30% have a wrong label: rows, given labels, true labels."""
    rows, labels = load_digits(return_X_y=True)
    given = symmetric(labels, rate=0.3, num_classes=10, seed=1).labels
    return StandardScaler().fit_transform(rows), given, labels


@pytest.fixture(scope="module")
def fitted(noisy):
    rows, given, _ = noisy
    return IMAEClassifier(random_state=0).fit(rows[:1200], given[:1200])


def test_it_tolerates_wrong_labels(fitted, noisy):
    rows, given, labels = noisy
    assert fitted.score(rows[1200:], labels[1200:]) > 0.9
    plain = IMAEClassifier("cce", cap=None, early_stopping=False, max_iter=40, random_state=0)
    plain.fit(rows[:1200], given[:1200])
    assert fitted.score(rows[1200:], labels[1200:]) > plain.score(rows[1200:], labels[1200:]) + 0.1


def test_it_names_the_wrong_labels(fitted, noisy):
    _, given, labels = (each[:1200] for each in noisy)
    is_wrong = given != labels
    assert fitted.noise_rate_ == pytest.approx(is_wrong.mean(), abs=0.05)
    suspects = fitted.suspect_rows_
    assert is_wrong[suspects].mean() > 0.9
    assert is_wrong[suspects].sum() > 0.8 * is_wrong.sum()
    assert (fitted.suggested_labels_[suspects] == labels[suspects]).mean() > 0.85
    quality = fitted.label_quality_
    assert (np.diff(quality[suspects]) >= 0).all(), "most suspect first"
    wrong = fitted.wrong_probability_
    assert wrong[suspects].min() >= np.delete(wrong, suspects).max()


def test_probabilities_are_those_of_the_network_without_its_cap(fitted, noisy):
    probabilities = fitted.predict_proba(noisy[0])
    assert probabilities.max() == pytest.approx(0.99, abs=1e-3)
    with torch.no_grad():
        own = fitted.network_(torch.from_numpy(noisy[0])).softmax(1).numpy()
    assert own.max() <= 0.75 + 1e-9
    np.testing.assert_allclose(stretched(own, 0.75), probabilities, rtol=1e-9)
    assert (own.argmax(1) == probabilities.argmax(1)).all()
    assert fitted.n_iter_ < 100, "training ends early"
    plain = clone(FAST).set_params(cap=None).fit(noisy[0][:200], noisy[2][:200])
    with torch.no_grad():
        own = plain.network_(torch.from_numpy(noisy[0])).softmax(1).numpy()
    np.testing.assert_allclose(plain.predict_proba(noisy[0]), own, rtol=1e-9)


def calibration_error(probabilities, labels):
    """Mean gap between confidence and accuracy, over ten parts of the rows by their confidence."""
    surest = probabilities.max(1)
    is_right = probabilities.argmax(1) == labels
    parts = np.array_split(np.argsort(surest), 10)
    return np.mean([abs(surest[part].mean() - is_right[part].mean()) for part in parts])


def test_probabilities_are_calibrated_to_true_labels_although_given_ones_are_wrong(fitted, noisy):
    rows, labels = noisy[0][1200:], noisy[2][1200:]
    assert calibration_error(fitted.predict_proba(rows), labels) < 0.05
    with torch.no_grad():
        own = fitted.network_(torch.from_numpy(rows)).softmax(1).numpy()
    assert calibration_error(own, labels) > 0.15
    assert log_loss(labels, fitted.predict_proba(rows)) < 0.6 * log_loss(labels, own)


def test_fits_with_the_same_seed_are_equal_and_the_global_generator_is_left_alone():
    rows, labels = load_iris(return_X_y=True)
    before = torch.random.get_rng_state()
    first, second = (clone(FAST).fit(rows, labels).predict_proba(rows) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(first, second)
    other = clone(FAST).set_params(random_state=1).fit(rows, labels)
    assert not np.array_equal(other.predict_proba(rows), first)
    copy = pickle.loads(pickle.dumps(other))
    np.testing.assert_array_equal(copy.predict(rows), other.predict(rows))


def test_pipelines_searches_and_folds():
    rows, labels = load_iris(return_X_y=True)
    model = make_pipeline(StandardScaler(), FAST)
    search = GridSearchCV(model, {"imaeclassifier__T": ["auto", 8.0]}, cv=2).fit(rows, labels)
    assert search.best_score_ > 0.8
    found = cross_val_predict(model, rows, labels, cv=2, method="predict_proba")
    assert found.shape == (150, 3)


def test_tables_and_texts():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"size": np.arange(60.0), "kind": ["a", "b", "c"] * 20})
    labels = np.where(frame["size"] < 30, "small", "large")
    columns = make_column_transformer((StandardScaler(), ["size"]), (OneHotEncoder(), ["kind"]))
    assert make_pipeline(columns, FAST).fit(frame, labels).score(frame, labels) > 0.9
    texts = ["good film", "bad film", "a good one", "a bad one"] * 10
    linear = IMAEClassifier(hidden_layer_sizes=(), learning_rate_init=0.1, random_state=0)
    words = make_pipeline(TfidfVectorizer(), linear)
    assert words.fit(texts, [1, 0] * 20).predict(["good", "bad"]).tolist() == [1, 0]


def test_sparse_rows_are_trained_on_as_dense_ones():
    rows, labels = load_iris(return_X_y=True)
    model = clone(FAST).set_params(hidden_layer_sizes=100)
    dense = clone(model).fit(rows, labels).predict_proba(rows)
    sparse = clone(model).fit(scipy.sparse.csr_array(rows), labels).predict_proba(rows)
    np.testing.assert_allclose(sparse, dense, rtol=1e-9)


def made_up_texts(num_texts=700, num_words=600):
    """Texts of three topics, a quarter of whose words are those of the topic."""
    draws = seeded(1)
    topics = [draws.choice(num_words, 60, replace=False) for _ in range(3)]
    common = 1 / np.arange(1, num_words + 1)
    labels = draws.integers(0, 3, num_texts)
    texts = []
    for label in labels:
        words = draws.choice(num_words, 18, p=common / common.sum()).tolist()
        texts.append(
            " ".join(f"w{word}" for word in words + draws.choice(topics[label], 6).tolist())
        )
    return texts, labels


@pytest.mark.parametrize("scale", [1.0, 20.0])
@pytest.mark.parametrize(("rate", "ahead"), [(0.0, -0.01), (0.2, 0.005)])
def test_texts_are_learned_as_well_as_by_regression_and_better_under_wrong_labels(
    scale, rate, ahead
):
    texts, labels = made_up_texts()
    rows = scale * TfidfVectorizer().fit_transform(texts)
    given = symmetric(labels[:450], rate=rate, num_classes=3, seed=1).labels
    accuracy = IMAEClassifier(random_state=0).fit(rows[:450], given).score(rows[450:], labels[450:])
    plain = LogisticRegression().fit(rows[:450] / scale, given)
    assert accuracy >= plain.score(rows[450:] / scale, labels[450:]) + ahead


@pytest.mark.parametrize("loss", ["gce:q=0.5", GCE(q=0.5), "mae"])
def test_other_losses(loss):
    rows, labels = load_iris(return_X_y=True)
    model = make_pipeline(StandardScaler(), IMAEClassifier(loss, max_iter=60, random_state=0))
    assert model.fit(rows, labels).score(rows, labels) > 0.85


def test_a_weight_counts_in_batches_and_in_the_rows_held_out():
    rows, labels = load_iris(return_X_y=True)
    weight = (labels != 2).astype(float)  # the third class does not count
    model = IMAEClassifier(batch_size=16, early_stopping=True, max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows, labels, weight)
    assert 2 not in model.predict(rows)


def test_training_does_not_end_before_a_rare_class_is_learned():
    rows, labels = load_digits(return_X_y=True)
    rows, is_eight = StandardScaler().fit_transform(rows), labels == 8
    model = IMAEClassifier(random_state=0).fit(rows[:1200], is_eight[:1200])
    found = model.predict(rows[1200:])
    assert found[is_eight[1200:]].mean() > 0.7
    assert (found == is_eight[1200:]).mean() > 0.96


def test_a_class_that_is_given_up_is_a_warning_and_none_of_its_rows_is_suspect():
    sizes = {"n_samples": 3000, "n_classes": 3, "n_informative": 8, "weights": [0.9, 0.09, 0.01]}
    rows, labels = make_classification(**sizes, class_sep=2, flip_y=0, random_state=0)
    rows = StandardScaler().fit_transform(rows)
    model = IMAEClassifier(random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"1 of 3 classes are hardly ever predicted \(2\)"):
        model.fit(rows, labels)
    assert 2 not in labels[model.suspect_rows_]
    model.fit(rows, labels, compute_sample_weight("balanced", labels))
    assert (model.predict(rows)[labels == 2] == 2).mean() > 0.8


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_a_linear_classifier_is_trained_to_its_end_by_default(load):
    rows, labels = load(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    model = IMAEClassifier(hidden_layer_sizes=(), random_state=1).fit(rows, labels)
    plain = LogisticRegression().fit(rows, labels)
    assert model.score(rows, labels) > plain.score(rows, labels) - 0.03
    assert model.noise_rate_ < 0.03
    assert len(model.suspect_rows_) <= 4


@pytest.mark.filterwarnings("ignore:class . .* is never predicted")
def test_training_that_was_cut_short_is_a_warning():
    rows, labels = load_iris(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    linear = IMAEClassifier(hidden_layer_sizes=(), random_state=1)
    for change in ({"learning_rate_init": 0.01, "max_iter": 100}, {"max_iter": 5}, {"max_iter": 1}):
        with pytest.warns(ConvergenceWarning, match=r"ended after max_iter=\d+ epochs while"):
            clone(linear).set_params(**change).fit(rows, labels)
    assert clone(linear).set_params(max_iter=400).fit(rows, labels).n_iter_ == 400


def test_hidden_layers_may_be_one_number_as_in_scikit_learn():
    rows, labels = load_iris(return_X_y=True)
    model = IMAEClassifier(hidden_layer_sizes=50, random_state=0)
    model.fit(StandardScaler().fit_transform(rows), labels)
    assert model.network_[0].out_features == 50


@pytest.mark.parametrize("make", [np.array, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_rows_of_a_large_magnitude_are_learned_in_float32_too(make):
    rows, labels = load_iris(return_X_y=True)
    large = make((rows * 1e20).astype(np.float32))
    model = IMAEClassifier(hidden_layer_sizes=100, random_state=0)
    model.fit(large, labels)
    assert model.score(large, labels) > 0.9
    assert model.noise_rate_ < 0.05
    with pytest.raises(DataError, match=r"X: a value has the size 7.9e\+150; scale the columns"):
        model.fit(make(rows * 1e150), labels)


def test_nothing_learned_is_a_warning_and_no_suspect():
    rows, labels = np.ones((40, 2)), np.array(["a", "b"] * 20)
    model = IMAEClassifier(random_state=0)
    with pytest.warns(ConvergenceWarning, match="all rows are predicted as class [ab]"):
        model.fit(rows, labels)
    assert math.isnan(model.noise_rate_)
    assert np.isnan(model.wrong_probability_).all()
    assert len(model.suspect_rows_) == 0
    assert model.suggested_labels_.tolist() == labels.tolist()


@pytest.mark.parametrize(
    "estimator",
    [FAST, LabelAuditor(auditor=FAST), LabelAuditor(LogisticRegression(), auditor=FAST)],
    ids=lambda each: type(each).__name__,
)
def test_every_parameter_is_checked_as_scikit_learn_checks_its_own(estimator):
    check_param_validation(type(estimator).__name__, estimator)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cap": 0.3}, r"cap must be in \(0.3333"),
        ({"cap": 1.0}, r"'cap' parameter .* Got 1.0"),
        ({"loss": "imea"}, "imea"),
        ({"max_iter": 0}, "'max_iter' parameter .* Got 0"),
        ({"max_iter": 2.5}, "'max_iter' parameter .* Got 2.5"),
        ({"n_iter_no_change": 0}, "'n_iter_no_change' parameter .* Got 0"),
        ({"early_stopping": "yes"}, "'early_stopping' parameter .* Got 'yes'"),
        ({"validation_fraction": 1.0}, "'validation_fraction' parameter .* Got 1.0"),
        ({"learning_rate_init": math.inf}, "'learning_rate_init' parameter .* Got inf"),
        ({"alpha": -1e-9}, "'alpha' parameter .* Got -1e-09"),
        ({"T": -1.0}, "'T' parameter .* Got -1.0"),
        ({"T": 101.0}, r"T must be in \[0, 100\]"),
        ({"loss": "gce", "T": 8.0}, "T belongs to loss='imae'"),
        ({"loss": "imae:T=8", "T": 2.0}, "T belongs to loss='imae'"),
        ({"hidden_layer_sizes": (), "T": 8.0}, "T belongs to loss='imae'"),
        ({"hidden_layer_sizes": (-5,)}, "hidden_layer_sizes must be at least 1"),
        ({"hidden_layer_sizes": 0}, "'hidden_layer_sizes' parameter .* Got 0"),
        ({"batch_size": "auto"}, "'batch_size' parameter .* Got 'auto'"),
    ],
)
def test_wrong_parameters_are_named_in_fit(change, message):
    rows, labels = load_iris(return_X_y=True)
    with pytest.raises(InvalidParameterError, match=message):
        IMAEClassifier(**change).fit(rows, labels)


@pytest.mark.parametrize(
    "change",
    [
        {"cap": 0.34},
        {"cap": None},
        {"T": 0},
        {"alpha": 0},
        {"batch_size": np.int64(1000)},
        {"hidden_layer_sizes": np.array([3])},
        {"early_stopping": True, "n_iter_no_change": math.inf, "validation_fraction": 0.5},
        {"random_state": np.random.RandomState(0)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_parameters_just_inside_are_taken(change):
    rows, labels = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = clone(FAST).set_params(max_iter=2, **change).fit(rows, labels)
    assert model.n_iter_ == 2


@pytest.mark.parametrize("make", [IMAEClassifier, LabelAuditor])
def test_masked_and_missing_values_are_one_line(make):
    rows, labels = np.eye(4), np.array([0, 1, 0, 1])
    estimator = make(random_state=0)
    for x, y, message in (
        (np.ma.masked_less(rows, 1), labels, "X: 12 values are masked, the first in row 0"),
        (rows, np.ma.masked_equal(labels, 1), "y: 2 values are masked, the first in row 1"),
        (
            rows,
            pandas.Series(["a", "b", None, "a"], dtype="string"),
            "y: 1 labels are missing, the",
        ),
        (rows, pandas.Series([1, 0, 1, None], dtype="Int64"), "y: 1 labels are missing, the first"),
        (rows, ["a", None, "b", None], r"y: 2 labels are missing, the first in row 1 \("),
        (rows, np.array(["a", None, "b", "b"], object), "y: 1 labels are missing, the first in r"),
        (rows, polars.Series(["a", "b", None, "b"]), "y: 1 labels are missing, the first in row 2"),
    ):
        with pytest.raises(DataError, match=message):
            estimator.fit(x, y)
    weight = np.ma.masked_less(np.arange(4.0), 1)
    with pytest.raises(DataError, match="sample_weight: 1 values are masked"):
        estimator.fit(rows, labels, sample_weight=weight)


def test_an_auditor_that_finds_no_suspects_is_one_line():
    with pytest.raises(InvalidParameterError, match="auditor: LogisticRegression finds no suspect"):
        LabelAuditor(auditor=LogisticRegression()).fit(np.eye(4), [0, 1, 0, 1])


def test_one_class_is_refused():
    rows, _ = load_iris(return_X_y=True)
    with pytest.raises(DataError, match="two classes or more"):
        FAST.fit(rows, np.zeros(150, int))


def test_the_auditor_drops_or_relabels_in_training_only(noisy):
    rows, given, labels = (each[:600] for each in noisy)
    auditor = IMAEClassifier(max_iter=40, random_state=0)
    dropping = LabelAuditor(LogisticRegression(), auditor=auditor).fit(rows, given)
    kept = dropping.sample_indices_
    assert (given != labels)[kept].mean() < 0.5 * (given != labels).mean()
    assert dropping.predict(rows).shape == (600,), "all rows are predicted"
    plain = LogisticRegression().fit(rows, given).score(noisy[0][1200:], noisy[2][1200:])
    assert dropping.score(noisy[0][1200:], noisy[2][1200:]) > plain + 0.05
    relabelling = LabelAuditor(auditor=auditor, action="relabel")
    same, corrected = relabelling.fit_resample(rows, given)
    assert same.shape == rows.shape
    assert (corrected != labels).mean() < (given != labels).mean() / 2
    assert not hasattr(relabelling, "predict")


@pytest.mark.parametrize("auditor", [None, make_pipeline(StandardScaler(), IMAEClassifier())])
def test_the_auditor_scales_raw_tables(auditor):
    rows, labels = load_wine(return_X_y=True)  # one column is a hundred times the others
    if auditor is not None:
        auditor = clone(auditor).set_params(imaeclassifier__random_state=0)
    found = LabelAuditor(LogisticRegression(max_iter=5000), auditor=auditor, random_state=0)
    assert len(found.fit(rows, labels).sample_indices_) > len(labels) - 4
    assert found.decision_function(rows).shape == (178, 3)


@pytest.mark.parametrize("auditor", [FAST, LabelAuditor(auditor=FAST)], ids=["one", "other"])
@pytest.mark.parametrize("weight", [np.zeros(150), np.ones(149), np.ones((150, 2))])
def test_weights_that_cannot_be_used_are_refused(auditor, weight):
    with pytest.raises(ValueError, match=r"zero|shape|1D"):
        auditor.fit(*load_iris(return_X_y=True), sample_weight=weight)


def test_weights_whose_sum_is_infinite_are_refused():
    rows, labels = load_iris(return_X_y=True)
    with pytest.raises(DataError, match=r"'0' must be 0 or from 1e-20 to 1e\+20"):
        clone(FAST).fit(rows.astype(np.float32), labels, np.full(150, 1e38))


def test_the_auditor_passes_weights_to_the_estimator():
    rows, labels = load_iris(return_X_y=True)
    auditor = LabelAuditor(LogisticRegression(), auditor=FAST)
    auditor.fit(rows, labels, sample_weight=(labels != 2) + 1e-9)
    assert 2 not in auditor.predict(rows)
    right = auditor.predict(rows) == labels
    weight = np.arange(150.0)
    expected = (right * weight).sum() / weight.sum()
    assert auditor.score(rows, labels, sample_weight=weight) == pytest.approx(expected)
    assert auditor.score(rows, labels) == pytest.approx(right.mean())


def test_no_class_loses_its_last_row():
    class Accuser(LogisticRegression):
        def fit(self, rows, labels):
            super().fit(rows, labels)
            self.suspect_rows_ = np.array([3, 0, 1])
            self.suggested_labels_ = np.zeros(len(labels), int)
            return self

    auditor = LabelAuditor(auditor=Accuser())
    _, labels = auditor.fit_resample(np.eye(4), np.array([1, 1, 0, 0]))
    assert auditor.sample_indices_.tolist() == [1, 2]
    assert labels.tolist() == [1, 0]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_an_own_auditor_may_take_words_and_missing_values(library):
    frames = pytest.importorskip(library)
    size = np.where(np.arange(60) % 7 == 0, math.nan, np.arange(60.0))
    frame = frames.DataFrame({"size": size, "kind": ["a", "b", "c"] * 20})
    labels = np.where(np.arange(60) < 30, "small", "large")
    labels[1] = "large"
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer((numbers, ["size"]), (OneHotEncoder(), ["kind"]))
    auditor = make_pipeline(columns, IMAEClassifier(random_state=0))
    model = LabelAuditor(make_pipeline(columns, LogisticRegression()), auditor=auditor)
    assert 1 not in model.fit(frame, labels).sample_indices_
    assert model.predict(frame)[1] == "small"
    with pytest.raises(ValueError, match=r"NaN|could not convert"):
        LabelAuditor().fit(frame, labels)


def test_the_auditor_in_a_pipeline_keeps_the_columns_of_a_frame():
    pandas = pytest.importorskip("pandas")
    rows, labels = load_iris(return_X_y=True)
    frame = pandas.DataFrame(rows, columns=["a", "b", "c", "d"])
    kept, _ = LabelAuditor(auditor=FAST).fit_resample(frame, labels)
    assert list(kept.columns) == ["a", "b", "c", "d"]
    with pytest.raises(TypeError, match="transform"):
        make_pipeline(LabelAuditor(), LogisticRegression()).fit(rows, labels)
    with pytest.raises(InvalidParameterError, match="'action' parameter"):
        LabelAuditor(action="hide").fit(rows, labels)


def test_scikit_learn_is_new_enough():
    assert tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_more_classes_than_rows_are_held_out():
    y = np.arange(1000) % 150
    x = np.random.default_rng(1).normal(size=(1000, 5))
    assert len(IMAEClassifier(max_iter=1, random_state=0).fit(x, y).classes_) == 150


def test_rows_that_are_too_large_are_not_predicted():
    x = np.random.default_rng(1).normal(size=(60, 3)).astype(np.float32)
    model = IMAEClassifier(max_iter=2, random_state=0).fit(x, x[:, 0] > 0)
    for size in (1e20, 1e30):
        with pytest.raises(DataError, match="X: a value has the size"):
            model.predict(np.full((2, 3), size, np.float32))
