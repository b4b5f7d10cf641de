import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer

from imae.data.features import hash_text

TEXTS = ["a good film, really good", "", "ein guter Film", "a good film, really good", "🎬 film"]


def test_batch_equals_the_vectorizers_dense_rows():
    texts = hash_text(TEXTS)
    rows = np.array([2, 0, 1, 4, 0])
    reference = HashingVectorizer(n_features=8192, ngram_range=(1, 2)).transform(
        [TEXTS[row] for row in rows]
    )
    batch = texts.batch(rows, generator=None).numpy()
    assert batch == pytest.approx(reference.toarray(), abs=1e-6)
    assert batch.dtype == np.float32
    assert texts.shape == (8192,)
    assert len(texts) == 5


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
