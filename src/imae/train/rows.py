"""The rows of a run: loaded, corrupted, held out, and described for later predictions."""

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from imae._draws import derive_seed
from imae.data import Data, HashedText, ImageFiles, Inputs, Split, hold_out, sample_rows
from imae.data.labels import label_notes
from imae.data.loading import check_options, load_unscaled
from imae.data.preparation import describe_preparation, fit_preparation, fit_scale, is_fitted
from imae.errors import ArgumentError, ChangedDataError, DataError
from imae.methods.catalog import METHODS
from imae.train.config import Config
from imae.train.preparation import frozen_features, published_images, with_start_pixels
from imae.train.relabel import (
    configured_noise,
    counted_transition,
    plant_wrong_labels,
    with_labels,
)

_TRUSTED_PER_CLASS = 10
_LARGEST_HASHED = 2**30  # bytes of image files; of larger sets names and sizes are hashed


@dataclass(frozen=True, eq=False)
class LoadedRows:
    """The data of a run before rows are set aside.

    Args:
        data: The rows, with their given labels.
        is_scaled: Whether the numbers are already standardised.
        content: Hash of the inputs, ids and given labels of each part, as loaded.
        images: The images from which a frozen network made features, if it did.
        annotations: Hash of the weights, and of the true labels, of each part.
    """

    data: Data
    is_scaled: bool
    content: Mapping[str, str]
    images: Inputs | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Prepared:
    """The rows that a run uses.

    Args:
        train: Rows to train on, with their given labels.
        validation: Held-out rows with their given labels, if any.
        test: Rows to report on, if the data has them.
        trusted: Rows with labels known to be right, for methods that learn from some.
        transition: Chance of each given label for each true label, shape (C, C), if known.
        images: The images or texts from which features were made, if those are trained on.
        planted: Rows whose label in ``train`` was made wrong, with their given labels.
        is_held_out: Whether ``validation`` was taken from the training rows of the data.
        content: Hash of the content of each part of the data; see ``LoadedRows``.
        annotations: Hash of the weights, and of the true labels, of each part.
        columns: For a table, each column and its use.
        label_kind: See ``imae.data.Data``.
        row_ids: Ids of the training rows in the order of the data, including those held out.
    """

    train: Split
    validation: Split | None
    test: Split | None
    trusted: Split | None = None
    transition: NDArray[np.float64] | None = None
    images: Inputs | None = None
    planted: Split | None = None
    is_held_out: bool = False
    content: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[tuple[str, str], ...] = ()
    label_kind: str = "name"
    row_ids: NDArray[np.str_] | None = None

    def positions(self, row_ids: NDArray[np.str_]) -> NDArray[np.int64] | None:
        """Positions of rows in the order of the data, shape (N,), where it is known."""
        if self.row_ids is None:
            return None
        places = {row_id: place for place, row_id in enumerate(self.row_ids.tolist())}
        return np.array([places[row_id] for row_id in row_ids.tolist()], np.int64)

    @property
    def unseen(self) -> tuple[Split, ...]:
        """Training rows of the data with labels that are not trained on: held out, planted."""
        held = self.validation if self.is_held_out else None
        return tuple(split for split in (held, self.planted) if split is not None)

    @property
    def is_planted(self) -> NDArray[np.bool_] | None:
        """Whether the label of each training row was planted, shape (N,), if any was."""
        planted = self.planted
        return None if planted is None else np.isin(self.train.row_ids, planted.row_ids)

    @property
    def is_flipped(self) -> NDArray[np.bool_] | None:
        """Whether the given label of each training row is wrong, shape (N,), where known."""
        if self.train.clean_labels is None:
            return None
        flipped: NDArray[np.bool_] = self.train.labels != self.train.clean_labels
        return flipped


Extractor: TypeAlias = Callable[[str, int], Callable[[Split], Split]]


def load_rows(
    config: Config,
    given: Data | None = None,
    *,
    extract: Extractor | None = None,
    scale_by_all: bool = False,
) -> LoadedRows:
    """The data of a run, with the labels, the sample and the features of its settings.

    Args:
        config: The settings.
        given: Data from Python, in place of what the settings name.
        extract: Makes features in place of ``frozen_features``; then nothing is hashed.
        scale_by_all: Whether the scale is also fitted to held-out rows, as in early versions.

    Raises:
        ArgumentError: If an option does not fit the data.
        DataError: If it cannot be used.
    """
    settings = config.data
    check_options(settings.options)
    if given is None:
        data, is_scaled = load_unscaled(settings.name, root=settings.root, **settings.options)
    else:
        data, is_scaled = given, is_fitted(given.train.inputs)
    if scale_by_all and not is_scaled:
        data, is_scaled = fit_preparation(data), True
    data = with_labels(data, settings.labels)
    content, annotations = {}, {}
    if extract is None:
        texts = settings.features is not None
        content = content_hashes(data, texts=texts)
        annotations = _annotation_hashes(data)
    if settings.rows is not None:  # before the features, which take long
        if settings.rows >= (number := len(data.train)):
            raise ArgumentError(f"data.rows: {settings.rows} of {number} rows; leave it out")
        data = replace(data, train=sample_rows(data.train, settings.rows, config.seed))
    if settings.features is None:
        if config.model.init is not None:
            data, is_scaled = with_start_pixels(config.model, data, is_scaled=is_scaled)
        return LoadedRows(data, is_scaled, content, annotations=annotations)
    images = published_images(settings.features, data.train.inputs)
    as_features = (extract or frozen_features)(settings.features, settings.workers)
    data = data.map_splits(as_features)
    data = fit_preparation(data) if scale_by_all else data
    return LoadedRows(data, scale_by_all, content, images, annotations)


def prepare(
    config: Config, rows: LoadedRows | None = None, *, needs_trusted: bool = False
) -> Prepared:
    """Adds noise to the rows of a run, holds some out and standardises them.

    Noise comes first, so that the held-out labels are as wrong as those trained on; a validation
    part that comes with the data gets noise of the same kind. The scale comes last: it is that
    of the rows that are trained on.

    Args:
        config: The settings.
        rows: The data, if it is already loaded.
        needs_trusted: Whether the method learns from rows with labels known to be right.

    Raises:
        ArgumentError: If an option does not fit the data.
        DataError: If the data cannot be used.
    """
    rows = load_rows(config) if rows is None else rows
    settings, data = config.data, rows.data
    train, validation, trusted = _split_off_trusted(
        data.train, data.validation, config, needs_trusted=needs_trusted
    )
    if not settings.own_validation:
        validation = None
    counted = None if train.clean_labels is None else counted_transition(train)
    transition = counted
    if config.noise is not None:
        corrupt = configured_noise(config, is_scaled=rows.is_scaled)
        noisy = corrupt(train, config.seed)
        train = train.relabel(noisy.labels)
        # Noise on labels that were noisy before: from the truth to the given label, then on.
        transition = noisy.transition if counted is None else counted @ noisy.transition
        if validation is not None:
            seed = derive_seed(config.seed, "validation noise")
            validation = validation.relabel(corrupt(validation, seed).labels)
    is_held_out = validation is None and settings.hold_out > 0
    if is_held_out:
        try:
            train, validation = hold_out(train, settings.hold_out, config.seed)
        except ArgumentError as error:
            doubts = "".join(f"; {doubt}" for doubt in label_notes(data)[:1])
            raise ArgumentError(
                f"data.hold_out (--hold-out): {error}; 0 holds none out{doubts}"
            ) from None
    if train.weights is not None and not train.weights.any():
        raise DataError(f"{settings.name}: all rows to train on have weight 0")
    share = settings.planted
    train, planted = plant_wrong_labels(train, share, config.seed) if share else (train, None)
    prepared = Prepared(
        train,
        validation,
        data.test,
        trusted,
        transition,
        images=rows.images,
        planted=planted,
        is_held_out=is_held_out,
        content=rows.content,
        annotations=rows.annotations,
        columns=data.columns,
        label_kind=data.label_kind,
        row_ids=data.train.row_ids,
    )
    return prepared if rows.is_scaled else _scaled(prepared, settings.name)


def _scaled(prepared: Prepared, source: str) -> Prepared:
    scale = fit_scale(prepared.train, source=source)

    def scaled(split: Split | None) -> Split | None:
        return None if split is None else scale(split)

    return replace(
        prepared,
        train=scale(prepared.train),
        validation=scaled(prepared.validation),
        test=scaled(prepared.test),
        trusted=scaled(prepared.trusted),
        planted=scaled(prepared.planted),
    )


def unchanged_data(
    settings: Mapping[str, Any], content: Mapping[str, str], *, with_files: bool = False
) -> Data:
    """The data of a run, not yet standardised, if it has not changed.

    Args:
        settings: The section ``data`` of the run's settings.
        content: Hashes of the parts as ``content_hashes`` found them; none to compare nothing.
        with_files: Whether rows identified by the names of image files are compared too. Such
            a name always means the same row, but its image or its label can change.

    Raises:
        ChangedDataError: If training or validation rows differ in content, order or label.
        ImaeError: If the data no longer exists, or cannot be read.
    """
    options = settings.get("options") or {}
    data, _ = load_unscaled(settings["name"], root=settings.get("root"), **options)
    if not content or (_is_named_by_files(data.train) and not with_files):
        return data
    data = with_labels(data, settings.get("labels"))
    texts = settings.get("features") is not None
    for part, split in data.splits().items():
        if part != "test" and content.get(part) != _content_hash(split, texts=texts):
            labels = f" with the labels of {settings['labels']}" if settings.get("labels") else ""
            raise ChangedDataError(
                f"{settings['name']}{labels}: is not what was trained on or audited, the {part} "
                "part differs, so its row ids may now mean other rows; restore the data, or "
                "audit it as it is now, in a new folder: imae audit DATA"
            )
    return data


def _is_named_by_files(split: Split) -> bool:
    """Whether the ids of the rows are the names of their image files."""
    if not isinstance(split.inputs, ImageFiles):
        return False
    named = zip(split.inputs.names, split.row_ids.tolist(), strict=True)
    return all(name.endswith(row_id) for name, row_id in named)


def content_hashes(data: Data, *, texts: bool) -> dict[str, str]:
    """Hashes of the inputs, ids and given labels of each part of data that is not standardised.

    Args:
        data: The data.
        texts: Whether texts count letter by letter, not only by their words.
    """
    return {name: _content_hash(split, texts=texts) for name, split in data.splits().items()}


def _content_hash(split: Split, *, texts: bool) -> str:
    """Hash of the inputs, ids and given labels of a part."""
    inputs, digest = split.inputs, hashlib.sha256()
    sizes: list[int] = []
    if isinstance(inputs, ImageFiles):
        with contextlib.suppress(OSError):  # the file is missed, with its name, when it is read
            sizes = [(inputs.root / name).stat().st_size for name in inputs.names]
    if sum(sizes) > _LARGEST_HASHED:
        digest.update(repr((inputs.shape, sizes)).encode())
    else:
        digest.update(inputs.content_hash().encode())
    if texts and isinstance(inputs, HashedText):  # embeddings see more than counts of words
        digest.update(repr(inputs.texts).encode())
    for column in (split.row_ids, split.labels):
        digest.update("\0".join(map(str, column.tolist())).encode())
    return digest.hexdigest()


def _annotation_hashes(data: Data) -> dict[str, str]:
    """Hashes by the name of what was hashed; separate from ``content``, which older runs have."""
    return {
        f"{name} of the {part} part": hashlib.sha256(
            b"" if values is None else np.ascontiguousarray(values).data
        ).hexdigest()
        for part, split in data.splits().items()
        for name, values in (("weights", split.weights), ("true labels", split.clean_labels))
    }


def leaves_out_rows(config: Config) -> bool:
    """Whether a run uses a part of its rows: a sample, or not those whose labels it trusts."""
    data, method = config.data, config.method
    if data.trusted is not None:
        sets_aside = data.trusted != "validation"
    else:  # a loss of one's own needs none
        is_known = method.name in METHODS
        sets_aside = is_known and METHODS.build(method.name, **method.arguments).needs_trusted
    return data.rows is not None or sets_aside


def is_truth_known(config: Config) -> bool:
    """Whether the true labels of the training rows are known; data without noise is read for it.

    Raises:
        DataError: If the data cannot be used.
    """
    if config.noise is not None:
        return True
    settings = config.data
    data, _ = load_unscaled(settings.name, root=settings.root, **settings.options)
    return _is_truth_known(with_labels(data, settings.labels).train, config)


def _is_truth_known(train: Split, config: Config) -> bool:
    return train.clean_labels is not None or config.noise is not None


def _split_off_trusted(
    train: Split, validation: Split | None, config: Config, *, needs_trusted: bool
) -> tuple[Split, Split | None, Split | None]:
    """Training rows, validation rows, and the rows with labels known to be right."""
    wanted = config.data.trusted
    if wanted is None and needs_trusted:
        wanted = _TRUSTED_PER_CLASS * train.num_classes
        if not _is_truth_known(train, config):
            raise ArgumentError(
                f"{config.method.name} learns from rows with labels known to be right: give the "
                "data a validation part with such labels and set data.trusted=validation"
            )
    if wanted is None:
        return train, validation, None
    if wanted == "validation":
        if validation is None:
            raise ArgumentError("data.trusted: the data has no validation part")
        return train, None, _with_true_labels(validation)
    assert isinstance(wanted, int)
    if not _is_truth_known(train, config):
        raise ArgumentError(
            "data.trusted: the true labels of these rows are not known; give the data a "
            "validation part with labels that are right and set data.trusted=validation"
        )
    if wanted >= len(train):
        raise ArgumentError(f"data.trusted: {wanted} rows of {len(train)} leave none to train on")
    train, trusted = hold_out(train, wanted / len(train), config.seed, purpose="trusted")
    return train, validation, _with_true_labels(trusted)


def _with_true_labels(split: Split) -> Split:
    return split if split.clean_labels is None else replace(split, labels=split.clean_labels)


def describe(prepared: Prepared, network: str | None) -> dict[str, Any]:
    """How the rows of a run are prepared, as plain values for ``RunFolder.write_preparation``.

    Args:
        prepared: The rows.
        network: Name of the frozen network whose features they are, if they are features.
    """
    inputs = prepared.train.inputs
    described = describe_preparation(inputs)
    if prepared.images is not None:
        images = describe_preparation(prepared.images)
        statistics = {name: described[name] for name in ("mean", "std")}
        described = {"kind": "frozen_features", "network": network, "images": images, **statistics}
    return {
        "class_names": list(prepared.train.class_names),
        "label_kind": prepared.label_kind,
        "input_shape": list(inputs.shape),
        "num_validation": 0 if prepared.validation is None else len(prepared.validation),
        "is_held_out": prepared.is_held_out,
        "preparation": described,
        "content": dict(prepared.content),
        "annotations": dict(prepared.annotations),
    }
