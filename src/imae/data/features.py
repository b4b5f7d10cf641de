"""Rows of numbers, and text as hashed word counts."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from imae.data.encoding import ColumnEncoding
from imae.data.split import Inputs, hash_rows
from imae.errors import DataError, import_extra


@final
@dataclass(frozen=True, eq=False)
class Table(Inputs):
    """A table of features; nothing is augmented.

    Args:
        values: Features, shape (N, F), finite; float32, or float64 until they are standardised,
            because a time in seconds has more digits than float32.
        columns: Names of the F features, if they have names.
        mean: What was subtracted from each feature, if they were standardised.
        std: What each feature was then divided by.
        encoding: How the features were made from the columns of a file, if they were.

    Raises:
        DataError: If the shape or dtype is wrong, or a value is NaN or infinite.

    Examples:
        >>> table = Table(np.eye(3, dtype=np.float32))
        >>> table.batch(np.array([2]), generator=None)
        tensor([[0., 0., 1.]])
    """

    values: NDArray[np.float32] | NDArray[np.float64]
    columns: tuple[str, ...] | None = field(default=None, kw_only=True)
    mean: tuple[float, ...] | None = field(default=None, kw_only=True)
    std: tuple[float, ...] | None = field(default=None, kw_only=True)
    encoding: tuple[ColumnEncoding, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.dtype not in (np.float32, np.float64):
            raise DataError(
                f"a table must be float32 or float64 of shape (N, F), "
                f"got {self.values.dtype} of shape {self.values.shape}"
            )
        # The sum of a column is finite only if all of it is: no mask of the table's size.
        with np.errstate(invalid="ignore", over="ignore"):
            totals = self.values.sum(axis=0, dtype=np.float64)
        for column, total in enumerate(totals):
            if not np.isfinite(total) and not np.isfinite(self.values[:, column]).all():
                row = int(np.isfinite(self.values[:, column]).argmin())
                value = self.values[row, column]
                raise DataError(f"row {row}, column {column} is {value}; features must be finite")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row: (F,)."""
        return self.values.shape[1:]

    def gather(
        self,
        rows: NDArray[np.int64],
        *,
        generator: torch.Generator | None,  # noqa: ARG002 - nothing to augment
    ) -> Tensor:
        """The features at these positions, shape (B, F)."""
        return torch.from_numpy(self.values[rows]).to(torch.float32)

    def finish(self, gathered: Tensor) -> Tensor:
        """The features unchanged, shape (B, F)."""
        return gathered

    def take(self, rows: NDArray[np.int64]) -> "Table":
        """The rows at these positions."""
        return replace(self, values=self.values[rows])

    def content_hash(self) -> str:
        """Hash of all values, their number and order."""
        digest = hashlib.sha256(repr(("table", self.values.shape)).encode())
        digest.update(np.ascontiguousarray(self.values).data)
        return digest.hexdigest()

    def row_keys(self) -> NDArray[np.uint64]:
        """Hashes of the values of every row."""
        return hash_rows(row.data for row in np.ascontiguousarray(self.values))


NUM_FEATURES = 2**13
_FEWEST_ROWS = 50
# With length 1 the slopes of robust losses are too small to start from: MAE ends with one class for
# all rows. With length 20 and more a linear layer memorises wrong labels. Of 2, 3 and 5, and counts
# or their logarithms, these were best on held-out given labels (results/texts/README.md).
ROW_LENGTH = 3.0


@final
@dataclass(frozen=True, eq=False)
class HashedText(Inputs):
    """Words of every text, hashed into a fixed number of features.

    ``hash_text`` gives a text the same features in any set. ``fit_weights`` computes the weight of
    each feature from training rows. Rows are stored sparse and made dense a batch at a time.

    Args:
        starts: Where each row's entries begin, and the end of the last, shape (N + 1,).
        features: Feature number of every entry, in [0, num_features).
        values: Value of every entry.
        num_features: Number of features F.
        ngrams: Longest group of words that is a feature of its own.
        column: Name of the column of the texts, if they come from a table.
        weights: Weight of every feature, shape (F,). With weights a row has length ``length``;
            without, length 1.
        length: Length of a row with weights.
        log_counts: Whether values are of log(1 + count) or of counts.
        texts: The N texts themselves, if they are available, for `embed_texts`.
    """

    starts: NDArray[np.int64]
    features: NDArray[np.int64]
    values: NDArray[np.float32]
    num_features: int = NUM_FEATURES
    ngrams: int = field(default=1, kw_only=True)
    column: str | None = field(default=None, kw_only=True)
    weights: NDArray[np.float32] | None = field(default=None, kw_only=True)
    length: float = field(default=ROW_LENGTH, kw_only=True)
    log_counts: bool = field(default=True, kw_only=True)
    texts: tuple[str, ...] | None = field(default=None, kw_only=True, repr=False)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row: (F,)."""
        return (self.num_features,)

    def gather(
        self,
        rows: NDArray[np.int64],
        *,
        generator: torch.Generator | None,  # noqa: ARG002 - nothing to augment
    ) -> Tensor:
        """The features at these positions, shape (B, F)."""
        dense = np.zeros((len(rows), self.num_features), np.float32)
        entries, lengths = self._entries(rows)
        places = np.repeat(np.arange(len(rows)), lengths), self.features[entries]
        dense[places] = self.values[entries]
        if self.weights is not None:
            dense[places] *= self.weights[places[1]]
            norms = np.linalg.norm(dense, axis=1, keepdims=True)
            dense *= np.float32(self.length) / np.maximum(norms, 1e-6)
        return torch.from_numpy(dense)

    def finish(self, gathered: Tensor) -> Tensor:
        """The features unchanged, shape (B, F)."""
        return gathered

    def take(self, rows: NDArray[np.int64]) -> "HashedText":
        """The rows at these positions."""
        entries, lengths = self._entries(rows)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        texts = None if self.texts is None else tuple(self.texts[row] for row in rows)
        found = self.features[entries], self.values[entries]
        return replace(self, starts=starts, features=found[0], values=found[1], texts=texts)

    def content_hash(self) -> str:
        """Hash of the features of all rows."""
        digest = hashlib.sha256(repr(("text", self.num_features)).encode())
        for part in (self.starts, self.features, self.values, self.weights):
            if part is not None:
                digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def fit_weights(self) -> NDArray[np.float32]:
        """The weight of each feature, from these rows: its inverse document frequency.

            weight = log((1 + N) / (1 + rows that have it)) + 1

        A feature of fewer than two rows has weight 0: it would only identify a row and
        so help the network to memorise wrong labels. With fewer than 50 rows all features count.

        Returns:
            Shape (F,).

        Reference:
            Sparck Jones, "A statistical interpretation of term specificity and its application in
            retrieval", Journal of Documentation 1972.
        """
        counts = np.bincount(self.features, minlength=self.num_features)
        weights = np.log((1 + len(self)) / (1 + counts)) + 1
        fewest = 2 if len(self) >= _FEWEST_ROWS else 0
        return np.where(counts >= fewest, weights, 0).astype(np.float32)

    def row_keys(self) -> NDArray[np.uint64]:
        """Hashes of the features of every row."""
        ends = zip(self.starts[:-1], self.starts[1:], strict=True)
        return hash_rows(
            self.features[start:end].tobytes() + self.values[start:end].tobytes()
            for start, end in ends
        )

    def _entries(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions of the entries of these rows, row by row, and how many each row has."""
        lengths = self.starts[rows + 1] - self.starts[rows]
        before = np.cumsum(lengths) - lengths
        return np.repeat(self.starts[rows] - before, lengths) + np.arange(lengths.sum()), lengths


def hash_text(
    texts: Sequence[str],
    *,
    num_features: int = NUM_FEATURES,
    ngrams: int = 1,
    log_counts: bool = True,
) -> HashedText:
    """Features of the texts: words by how often they occur, each row of length 1.

    Args:
        texts: The texts, N of them.
        num_features: Number of features F.
        ngrams: Longest group of words that counts as a feature of its own. Pairs are nearly unique
            to a row, and a network memorises wrong labels by them.
        log_counts: Whether a word counts as log(1 + its number in the text), not as its number.

    Examples:
        >>> hash_text(["good film", "bad film"]).shape
        (8192,)

    Reference:
        Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", ICML 2009.
    """
    library = import_extra("sklearn.feature_extraction.text", extra="data")
    vectorizer = library.HashingVectorizer(
        n_features=num_features, ngram_range=(1, ngrams), dtype=np.float32, norm=None
    )
    sparse = vectorizer.transform(texts)
    if log_counts:
        sparse.data = np.sign(sparse.data) * np.log1p(np.abs(sparse.data))
    sparse = import_extra("sklearn.preprocessing", extra="data").normalize(sparse, copy=False)
    entries = sparse.indptr.astype(np.int64), sparse.indices.astype(np.int64), sparse.data
    return HashedText(
        *entries, num_features, ngrams=ngrams, log_counts=log_counts, texts=tuple(texts)
    )
