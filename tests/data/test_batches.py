import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from imae.data.batches import Batches, balanced_sizes
from imae.data.features import Table
from imae.data.image_files import ImageFiles
from imae.data.split import Split
from imae.errors import ArgumentError, DataError, MissingExtraError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def array_split(images):
    ids = np.array([f"{row}" for row in range(40)])
    return Split(images, np.arange(40) % 3, ids, ("a", "b", "c"))


@pytest.fixture
def file_split(photo_folder):
    names = sorted(str(path.relative_to(photo_folder)) for path in photo_folder.glob("*/*.jpg"))
    files = ImageFiles(photo_folder, names, resize=24, crop=20)
    return Split(files, np.arange(7) % 2, np.array(names), ("cat", "dog"))


def equal(first, second) -> bool:
    first, second = list(first), list(second)
    return len(first) == len(second) and all(
        torch.equal(a.inputs, b.inputs)
        and torch.equal(a.target, b.target)
        and torch.equal(a.row, b.row)
        for a, b in zip(first, second, strict=True)
    )


def test_an_epoch_gives_every_row_once_with_its_label(array_split):
    batches = Batches(array_split, 16, seed=1)
    epoch = list(batches.epoch(0))
    rows = torch.cat([batch.row for batch in epoch])
    assert [len(batch) for batch in epoch] == [16, 16, 8]
    assert len(batches) == 3
    assert sorted(rows.tolist()) == list(range(40))
    assert torch.cat([batch.target for batch in epoch]).tolist() == (rows % 3).tolist()
    assert {batch.inputs.dtype for batch in epoch} == {torch.float32}
    assert {batch.row.dtype for batch in epoch} | {batch.target.dtype for batch in epoch} == {
        torch.int64
    }
    assert epoch[0].weight is None


def test_the_weights_of_the_rows_come_along(table_split):
    split = table_split([0, 1, 0], weights=np.array([5, 6, 7], np.float32))
    batch = next(Batches(split, 3, seed=1).epoch(0))
    assert batch.weight.tolist() == [5 + row for row in batch.row.tolist()]
    assert batch.inputs.ravel().tolist() == batch.row.tolist()


def test_seeds_and_epochs_differ_and_repeat(array_split):
    first = Batches(array_split, 16, seed=1)
    assert equal(first.epoch(3), Batches(array_split, 16, seed=1).epoch(3))
    assert not equal(first.epoch(3), first.epoch(4))
    assert not equal(first.epoch(3), Batches(array_split, 16, seed=2).epoch(3))


def test_augmentation_differs_from_epoch_to_epoch_for_the_same_row(array_split):
    batches = Batches(array_split, 40, seed=1, shuffle=False)
    first, second = (next(batches.epoch(epoch)).inputs for epoch in (0, 1))
    assert not torch.equal(first, second)


def test_without_shuffle_and_augment_it_is_the_split(array_split):
    batches = Batches(array_split, 16, seed=1, shuffle=False, augment=False)
    whole = torch.cat([batch.inputs for batch in batches.epoch(5)])
    assert torch.equal(whole, array_split.inputs.batch(np.arange(40), generator=None))


@pytest.mark.parametrize("start_step", [0, 1, 2, 3])
def test_an_epoch_can_be_entered_at_any_step(array_split, start_step):
    batches = Batches(array_split, 16, seed=1)
    whole = list(batches.epoch(2))
    assert equal(whole[start_step:], batches.epoch(2, start_step=start_step))


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_nothing(array_split, file_split, workers):
    for split, size in ((array_split, 16), (file_split, 3)):
        alone = Batches(split, size, seed=1)
        helped = Batches(split, size, seed=1, workers=workers)
        assert equal(alone.epoch(1), helped.epoch(1))
        assert equal(list(alone.epoch(1))[1:], helped.epoch(1, start_step=1))


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_the_shares_of_the_ranks_are_the_batches_of_one(array_split, num_ranks):
    whole = list(Batches(array_split, 16, seed=1).epoch(1))
    shares = [
        list(Batches(array_split, 16, seed=1, rank=rank, num_ranks=num_ranks).epoch(1))
        for rank in range(num_ranks)
    ]
    for step, batch in enumerate(whole):
        parts = [share[step] for share in shares]
        assert torch.equal(batch.inputs, torch.cat([part.inputs for part in parts]))
        assert torch.equal(batch.row, torch.cat([part.row for part in parts]))
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1


def test_a_batch_size_beyond_the_rows_gives_one_batch(array_split):
    (batch,) = Batches(array_split, 1000, seed=1).epoch(0)
    assert len(batch) == 40


def test_drop_last_leaves_out_what_is_not_full(array_split):
    batches = Batches(array_split, 16, seed=1, drop_last=True)
    assert [len(batch) for batch in batches.epoch(0)] == [16, 16]
    assert len(Batches(array_split, 20, seed=1, drop_last=True)) == 2


def test_the_global_generators_are_left_alone(array_split, file_split):
    before = torch.get_rng_state()
    for split in (array_split, file_split):
        list(Batches(split, 8, seed=1).epoch(0))
        list(Batches(split, 8, seed=1, workers=1).epoch(0))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batch_size": 1, "num_ranks": 2}, "batch_size must be at least 2"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"workers": -1}, "workers must be at least 0"),
        ({"rank": 2, "num_ranks": 2}, "rank must be below num_ranks"),
        ({"rank": -1}, "rank must be at least 0"),
        ({"num_ranks": 0}, "num_ranks must be at least 1"),
        ({"batch_size": 41, "drop_last": True}, "40 rows do not fill a batch of 41"),
        ({"batch_size": 39, "num_ranks": 2}, "the last batch has 1 rows for 2 ranks"),
    ],
)
def test_refuses(array_split, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        Batches(array_split, **{"batch_size": 8, "seed": 1, **arguments})


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 40, "drop_last": True},
        {"batch_size": 38, "num_ranks": 2},
        {"batch_size": 39, "num_ranks": 2, "drop_last": True},
        {"rank": 1, "num_ranks": 2},
    ],
)
def test_accepts_what_is_just_inside(array_split, arguments):
    assert len(Batches(array_split, **{"batch_size": 8, "seed": 1, **arguments})) >= 1


def test_epoch_refuses_steps_that_are_not_there(array_split):
    batches = Batches(array_split, 16, seed=1)
    with pytest.raises(ArgumentError, match="start_step must be at most 3, got 4"):
        batches.epoch(0, start_step=4)
    with pytest.raises(ArgumentError, match="epoch must be at least 0"):
        batches.epoch(-1)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_image_is_one_line_from_any_process(file_split, workers):
    torn = file_split.inputs.root / file_split.inputs.names[4]
    torn.write_bytes(b"no image")
    batches = Batches(file_split, 2, seed=1, workers=workers)
    with pytest.raises(DataError) as caught:
        list(batches.epoch(0))
    assert str(torn) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_noisy_labels_are_what_the_batch_gives(array_split):
    noisy = array_split.relabel(np.zeros(40, np.int64))
    assert set(next(Batches(noisy, 40, seed=1).epoch(0)).target.tolist()) == {0}
    assert replace(noisy).clean_labels.tolist() == array_split.labels.tolist()


class Lacking(Table):
    """Inputs that need a package which is not there."""

    def gather(self, rows, *, generator):  # noqa: ARG002
        raise MissingExtraError("pip install 'imae[data]'")


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_workers_keep_their_type_and_their_one_line(table_split, workers):
    split = replace(table_split([0, 1]), inputs=Lacking(np.zeros((2, 1), np.float32)))
    with pytest.raises(MissingExtraError) as caught:
        next(Batches(split, 2, seed=1, workers=workers).epoch(0))
    assert str(caught.value) == "pip install 'imae[data]'"


class Interrupted(Table):
    """Rows whose reader gets the Ctrl-C of the terminal."""

    def gather(self, rows, *, generator):
        signal.raise_signal(signal.SIGINT)
        return super().gather(rows, generator=generator)


def test_a_worker_leaves_ctrl_c_to_the_run(table_split):
    split = replace(table_split([0, 1]), inputs=Interrupted(np.zeros((2, 1), np.float32)))
    (batch,) = Batches(split, 2, seed=1, workers=1).epoch(0)
    assert batch.inputs.shape == (2, 1)


def test_balanced_batches_hold_as_many_rows_of_every_class_drawn(array_split):
    batches = Batches(array_split, 8, seed=3, balanced=4)
    assert len(batches) == 5
    seen = []
    for batch in batches.epoch(0):
        labels, counts = np.unique(batch.target.numpy(), return_counts=True)
        assert len(labels) == 2
        assert counts.tolist() == [4, 4]
        assert len(set(batch.row.tolist())) == 8
        np.testing.assert_array_equal(array_split.labels[batch.row.numpy()], batch.target.numpy())
        seen.append(batch.row.tolist())
    assert seen != [batch.row.tolist() for batch in batches.epoch(1)]


def test_balanced_batches_favour_rare_classes(images):
    labels = np.array([0] * 34 + [1] * 6)
    ids = np.array([f"{row}" for row in range(40)])
    split = Split(images, labels, ids, ("many", "few"))
    targets = torch.cat([batch.target for batch in Batches(split, 8, seed=3, balanced=4).epoch(0)])
    assert targets.float().mean() == 0.5


def test_balanced_batches_can_be_resumed_and_shared(array_split):
    whole = list(Batches(array_split, 8, seed=3, balanced=4).epoch(2))
    rest = Batches(array_split, 8, seed=3, balanced=4).epoch(2, start_step=3)
    assert equal(whole[3:], rest)
    ranks = [
        list(Batches(array_split, 8, seed=3, balanced=4, rank=rank, num_ranks=2).epoch(2))
        for rank in (0, 1)
    ]
    for batch, *shares in zip(whole, *ranks, strict=True):
        assert torch.equal(batch.row, torch.cat([share.row for share in shares]))


@pytest.mark.parametrize(
    ("batch_size", "balanced", "message"),
    [
        (9, 4, r"batch_size \(train.batch_size\) must be a multiple of balanced, got 9 and 4"),
        (
            16,
            4,
            "need 4 classes, and there are 3; 5 rows of each in batches of 15 fit these rows "
            r"\(--set data.balanced=5 --set train.batch_size=15\)",
        ),
        (14, 14, "balanced must be at most 13, the rows of class 'b', got 14"),
        (8, 0, "balanced must be at least 1"),
    ],
)
def test_balanced_batches_that_cannot_be_filled_are_refused(
    array_split, batch_size, balanced, message
):
    with pytest.raises(ArgumentError, match=message):
        Batches(array_split, batch_size, seed=3, balanced=balanced)


@pytest.mark.parametrize("counts", [(990, 10), (60, 3, 0, 5), (2,) * 70, (40, 40)])
def test_the_sizes_that_are_named_make_balanced_batches(counts):
    sizes = balanced_sizes(np.array(counts), 64)
    labels = np.repeat(np.arange(len(counts)), counts)
    rows = Table(np.zeros((len(labels), 1), np.float32))
    names = tuple(map(str, range(len(counts))))
    split = Split(rows, labels, np.arange(len(labels)).astype(str), names)
    balanced, batch_size = sizes
    assert len(next(Batches(split, batch_size, seed=1, balanced=balanced).epoch(0))) == batch_size
    assert balanced_sizes(np.array([99, 1]), 64) is None
