import json

import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer

from imae._draws import seeded
from imae.data import Split, load_unlabelled
from imae.data.features import hash_text
from imae.data.preparation import describe_preparation, fit_scale, without_rows
from imae.errors import DataError
from imae.train import build_config, train

TEXTS = ["a good film, really good", "", "ein guter Film", "a good film, really good", "🎬 film"]


def test_batch_equals_the_vectorizers_dense_rows():
    texts = hash_text(TEXTS, log_counts=False)
    rows = np.array([2, 0, 1, 4, 0])
    reference = HashingVectorizer(n_features=8192).transform([TEXTS[row] for row in rows])
    batch = texts.batch(rows, generator=None).numpy()
    assert batch == pytest.approx(reference.toarray(), abs=1e-6)
    assert batch.dtype == np.float32
    assert texts.shape == (8192,)
    assert len(texts) == 5


def test_a_word_counts_by_the_logarithm_of_its_number():
    row = hash_text(["good good good film"]).batch(np.array([0]), generator=None).numpy()
    expected = np.log([2, 4]) / np.linalg.norm(np.log([2, 4]))
    assert sorted(np.abs(row[row != 0])) == pytest.approx(expected, rel=1e-6)


def test_runs_of_earlier_versions_keep_their_preparation():
    like = without_rows({"kind": "texts", "num_features": 8192, "ngrams": 1, "weights": None})
    assert (like.length, like.log_counts) == (5.0, False)
    again = without_rows(describe_preparation(hash_text(TEXTS)))
    assert (again.length, again.log_counts) == (3.0, True)


def test_a_text_has_the_same_features_in_any_set():
    alone = hash_text([TEXTS[2]]).batch(np.array([0]), generator=None)
    assert np.array_equal(alone, hash_text(TEXTS).batch(np.array([2]), generator=None))


def test_take_is_the_rows_alone_even_of_empty_texts():
    texts = hash_text(TEXTS)
    taken = texts.take(np.array([1, 4, 0]))
    assert len(taken) == 3
    assert np.array_equal(
        taken.batch(np.arange(3), generator=None), texts.batch(np.array([1, 4, 0]), generator=None)
    )
    assert taken.content_hash() == hash_text([TEXTS[1], TEXTS[4], TEXTS[0]]).content_hash()
    assert taken.content_hash() != texts.content_hash()


def many(number=60):
    """Texts of a common word, one of three, and one of their own."""
    return [f"the {('ball', 'bank', 'bread')[row % 3]} own{row}" for row in range(number)]


def split_of(texts, **options):
    names = np.arange(len(texts)).astype(str)
    return Split(hash_text(texts, **options), np.arange(len(texts)) % 3, names, ("a", "b", "c"))


def test_weights_are_inverse_document_frequencies():
    texts = many()
    fitted = fit_scale(split_of(texts), source="x")(split_of(texts)).inputs
    row = fitted.batch(np.array([0]), generator=None).numpy().ravel()
    reference = TfidfVectorizer(min_df=2).fit(texts)
    expected = sorted(reference.transform(texts[:1]).data * 3)
    assert sorted(np.abs(row[row != 0])) == pytest.approx(expected, rel=1e-5)


def test_words_of_one_row_do_not_count_unless_rows_are_few():
    # The common word and the three topics, and pairs of words that share a feature by chance.
    assert 4 <= (hash_text(many(60)).fit_weights() > 0).sum() <= 8
    assert (hash_text(many(40)).fit_weights() > 0).all()


def test_a_text_without_a_known_word_is_zero():
    texts = many()
    change = fit_scale(split_of(texts), source="x")
    assert not change(split_of(["unheard of"] * 3)).inputs.batch(np.arange(3), generator=None).any()


@pytest.mark.parametrize("ngrams", [1, 2])
def test_the_weights_are_stored_and_used_for_new_rows(tmp_path, ngrams):
    path = tmp_path / "texts.csv"
    path.write_text("text\n" + "\n".join(many()) + "\n")
    trained = fit_scale(split_of(many(), ngrams=ngrams), source="x")(
        split_of(many(), ngrams=ngrams)
    )
    described = json.loads(json.dumps(describe_preparation(trained.inputs)))
    new = load_unlabelled(path, like=without_rows(described)).inputs
    rows = np.arange(60)
    batch = trained.inputs.batch(rows, generator=None)
    assert np.array_equal(new.batch(rows, generator=None), batch)


def test_runs_of_the_first_version_keep_their_features(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text\ngood film\nbad film\n")
    like = without_rows({"kind": "texts", "num_features": 8192})
    batch = load_unlabelled(path, like=like).inputs.batch(np.arange(2), generator=None).numpy()
    reference = HashingVectorizer(n_features=8192, ngram_range=(1, 2))
    assert batch == pytest.approx(
        reference.transform(["good film", "bad film"]).toarray(), abs=1e-6
    )


def test_damaged_weights_are_refused():
    for weights in ([1.0], [float("nan")] * 8192):
        with pytest.raises(DataError, match="not understood"):
            without_rows({"kind": "texts", "num_features": 8192, "weights": weights})


@pytest.mark.parametrize("method", ["imae_stable", "mae"])
def test_a_network_learns_from_texts_with_wrong_labels(tmp_path, method):
    """With rows of length 1 every prediction was one class."""
    generator = seeded(1)
    words = [topic.split() for topic in ("goal team coach", "bank loan tax", "oven salt bread")]
    lines = ["text,label,split"]
    for row in range(300):
        topic = int(generator.integers(3))
        text = " ".join(generator.choice([*words[topic], "the", "of", "was"], 7).tolist())
        wrong = row < 200 and generator.random() < 0.2
        label = (topic + 1) % 3 if wrong else topic
        lines.append(f"{text},{label},{'train' if row < 200 else 'test'}")
    (tmp_path / "texts.csv").write_text("\n".join(lines) + "\n")
    config = build_config(
        {
            "data": {"name": str(tmp_path / "texts.csv")},
            "method": {"name": method},
            "train": {"epochs": 20},
            "out": str(tmp_path / "run"),
        }
    )
    assert config.model.name is None
    assert train(config).result["final"]["test_accuracy"] >= 0.9
