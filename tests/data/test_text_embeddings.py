from dataclasses import replace

import numpy as np
import pytest
import torch

from imae.data import Table, hash_text
from imae.data.extract import embed_texts, is_text_embedding
from imae.errors import ArgumentError, DataError, MissingExtraError
from imae.train import build_config, train
from imae.train.predict import predict

tokenizers = pytest.importorskip("tokenizers")
WORDS = {"[UNK]": 0, "good": 1, "bad": 2, "film": 3}


def write_embedding(folder, vectors):
    from safetensors.torch import save_file

    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file({"embeddings": torch.tensor(vectors)}, folder / "model.safetensors")
    return str(folder)


@pytest.fixture
def embedding(tmp_path):
    folder = tmp_path / "embedding"
    folder.mkdir()
    return write_embedding(folder, [[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [1.0, 1.0]])


def test_a_text_is_the_mean_of_its_word_pieces_with_length_one(embedding):
    found = embed_texts(hash_text(["good film", "bad bad film", "", "unheard"]), embedding).values
    expected = [[4, 1], [1, 7], [0, 0], [0, 0]]
    lengths = np.array([17**0.5, 50**0.5, 1, 1])[:, None]
    np.testing.assert_allclose(found, np.array(expected) / lengths, rtol=1e-6)


def test_rows_that_were_taken_keep_their_texts(embedding):
    texts = hash_text(["good film", "bad film"]).take(np.array([1]))
    expected = embed_texts(hash_text(["bad film"]), embedding).values
    np.testing.assert_array_equal(embed_texts(texts, embedding).values, expected)


def test_only_texts_have_embeddings(embedding):
    table = Table(np.eye(2, dtype=np.float32))
    without = replace(hash_text(["good"]), texts=None)
    for inputs in (table, without):
        with pytest.raises(ArgumentError, match="are for texts"):
            embed_texts(inputs, embedding)


def test_what_is_not_an_embedding_is_refused(tmp_path, embedding):
    texts = hash_text(["good film"])
    with pytest.raises(DataError, match=r"tokenizer\.json or model\.safetensors cannot be read"):
        embed_texts(texts, str(tmp_path))
    write_embedding(tmp_path / "embedding", [[0.0], [1.0]])
    with pytest.raises(DataError, match="has 2 embeddings and more word pieces"):
        embed_texts(texts, embedding)
    write_embedding(tmp_path / "embedding", [0.0, 1.0])
    with pytest.raises(DataError, match="must hold one matrix, holds 0"):
        embed_texts(texts, embedding)
    (tmp_path / "embedding" / "tokenizer.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        embed_texts(texts, embedding)


def test_the_package_is_named_if_it_is_missing(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert is_text_embedding("wordllama")
    with pytest.raises(MissingExtraError, match=r"pip install 'imae\[texts\]'"):
        embed_texts(hash_text(["good film"]), "wordllama")


def test_the_embeddings_in_the_package_know_related_words():
    pytest.importorskip("wordllama")
    words = hash_text(["cat", "kitten", "invoice"])
    cat, kitten, invoice = embed_texts(words, "wordllama").values
    assert cat @ kitten > cat @ invoice + 0.2


def test_a_run_on_embeddings_predicts_texts_and_resumes_elsewhere(tmp_path, embedding, monkeypatch):
    rows = ["good film,yes", "good,yes", "bad film,no", "bad,no"] * 8
    (tmp_path / "texts.csv").write_text("text,label\n" + "\n".join(rows))
    monkeypatch.chdir(tmp_path)
    settings = {
        "data": {"name": "texts.csv", "features": "embedding"},
        "train": {"epochs": 3},
        "out": "run",
    }
    run = train(build_config(settings))
    assert run.config.data.features == embedding  # from another working directory too
    (tmp_path / "new.csv").write_text("text\ngood good film\nbad bad film\n")
    predicted = predict(run, tmp_path / "new.csv")
    assert [predicted.class_names[label] for label in predicted.labels] == ["yes", "no"]
