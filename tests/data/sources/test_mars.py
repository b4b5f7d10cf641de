"""MARS on a small tree of the official layout."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from imae.data.image_files import ImageFiles
from imae.data.sources.photo_sets import locate_mars, mars, mars_tracklets, verify_mars
from imae.data.tracklets import Tracklets
from imae.errors import DataError

# Tracklets of each part: person, camera, number of frames. -1 is junk, 0 a distractor.
TRAIN = [(1, 1, 3), (1, 2, 2), (7, 6, 1)]
TEST = [(-1, 1, 2), (0, 3, 2), (2, 1, 2), (2, 4, 3), (9, 5, 1)]
QUERIES = [3, 5]  # from 1


def write_part(folder: Path, part: str, tracklets: list[tuple[int, int, int]]) -> None:
    names, rows = [], []
    for number, (person, camera, frames) in enumerate(tracklets, 1):
        head = "00-1" if person == -1 else f"{person:04d}"
        rows.append((len(names) + 1, len(names) + frames, person, camera))
        for frame in range(1, frames + 1):
            names.append(f"{head}C{camera}T{number:04d}F{frame:03d}.jpg")
            path = folder / f"bbox_{part}" / head / names[-1]
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (64, 128), (camera * 40, 0, 0)).save(path)
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info" / f"{part}_name.txt").write_text("\n".join(names) + "\n")
    table = np.array(rows, float)
    savemat(folder / "info" / f"tracks_{part}_info.mat", {f"track_{part}_info": table})


@pytest.fixture(params=["mars", "."])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / request.param
    write_part(folder, "train", TRAIN)
    write_part(folder, "test", TEST)
    savemat(folder / "info" / "query_IDX.mat", {"query_IDX": np.array([QUERIES], float)})
    return tmp_path


def info(root: Path) -> Path:
    return next(root.rglob("query_IDX.mat")).parent


def test_training_frames_carry_their_person(root: Path) -> None:
    data = mars(root)
    assert data.class_names == ("0001", "0007")
    assert data.train.labels.tolist() == [0] * 5 + [1]
    assert data.train.row_ids[[0, 3, 5]].tolist() == [
        "bbox_train/0001/0001C1T0001F001.jpg",
        "bbox_train/0001/0001C2T0002F001.jpg",
        "bbox_train/0007/0007C6T0003F001.jpg",
    ]
    assert data.validation is None
    assert data.test is None
    assert data.train.inputs.batch(np.array([5]), generator=None).shape == (1, 3, 227, 227)


def test_tracklets_leave_junk_out_and_keep_distractors(root: Path) -> None:
    tracklets = mars_tracklets(root)
    assert len(tracklets) == 4
    assert tracklets.person_ids.tolist() == [0, 2, 2, 9]
    assert tracklets.cameras.tolist() == [3, 1, 4, 5]
    assert tracklets.is_query.tolist() == [False, True, False, True]
    assert tracklets.query_rows.tolist() == [1, 3]
    assert tracklets.gallery_rows.tolist() == [0, 1, 2, 3]


def test_frames_of_a_tracklet(root: Path) -> None:
    tracklets = mars_tracklets(root)
    assert [tracklets.frame_rows(row).tolist() for row in range(4)] == [
        [0, 1],
        [2, 3],
        [4, 5, 6],
        [7],
    ]
    frames = tracklets.frames
    assert isinstance(frames, ImageFiles)
    assert [frames.names[row] for row in tracklets.frame_rows(3)] == [
        "bbox_test/0009/0009C5T0005F001.jpg"
    ]
    red = [frames.batch(tracklets.frame_rows(row), generator=None)[:, 0].mean() for row in range(4)]
    assert np.argsort(red).tolist() == [1, 0, 2, 3]  # by camera: 3, 1, 4, 5


def test_verify_finds_missing_frames(root: Path) -> None:
    assert verify_mars(root).keys() == {"train", "test"}
    next(root.rglob("0002C4T0004F002.jpg")).unlink()
    with pytest.raises(DataError, match="1 of 10 images are missing"):
        verify_mars(root)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ((0, 3, 1, 1), "row 1: frames 0 to 3"),
        ((3, 2, 1, 1), "row 1: frames 3 to 2"),
        ((1, 7, 1, 1), "row 1: frames 1 to 7 of the 6"),
        ((1, 3, 2, 1), "row 1: person 2 and camera 1, but frame 1 is 0001C1T0001F001"),
        ((1, 3, 1, 2), "row 1: person 1 and camera 2"),
        ((1, 4, 1, 1), "row 1: person 1 and camera 1, but frame 4 is 0001C2T0002F001"),
        ((4, 6, 1, 2), "row 1: person 1 and camera 2, but frame 6 is 0007C6T0003F001"),
    ],
)
def test_table_that_does_not_fit(root: Path, row: tuple[int, ...], reason: str) -> None:
    savemat(info(root) / "tracks_train_info.mat", {"track_train_info": np.array([row], float)})
    with pytest.raises(DataError, match=rf"tracks_train_info\.mat: {reason}"):
        mars(root)


def test_rows_that_share_frames(root: Path) -> None:
    table = np.array([(4, 5, 1, 2), (1, 2, 1, 1), (2, 3, 1, 1)], float)
    savemat(info(root) / "tracks_train_info.mat", {"track_train_info": table})
    with pytest.raises(DataError, match=r"tracks_train_info\.mat: rows 2 and 3 share frames"):
        mars(root)


def test_table_of_other_columns(root: Path) -> None:
    savemat(info(root) / "tracks_train_info.mat", {"track_train_info": np.ones((2, 3))})
    with pytest.raises(DataError, match=r"a table of shape \(2, 3\), not of 4 columns"):
        mars(root)


@pytest.mark.parametrize("query", [0, 6])
def test_query_outside_the_tracklets(root: Path, query: int) -> None:
    savemat(info(root) / "query_IDX.mat", {"query_IDX": np.array([[query]], float)})
    with pytest.raises(DataError, match="a query outside the 5 tracklets"):
        mars_tracklets(root)


@pytest.mark.parametrize("queries", [[], [1]])
def test_without_a_query_there_is_no_retrieval(root: Path, queries: list[int]) -> None:
    """The first tracklet of the test part is junk."""
    savemat(info(root) / "query_IDX.mat", {"query_IDX": np.array([queries], float)})
    for load in (mars_tracklets, verify_mars):
        with pytest.raises(DataError, match=r"query_IDX\.mat: names no query"):
            load(root)


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("rows", [[], [(1, 2, -1, 1)]])
def test_a_part_without_tracklets(root: Path, part: str, rows: list[tuple[int, ...]]) -> None:
    table = np.array(rows, float).reshape(-1, 4)
    savemat(info(root) / f"tracks_{part}_info.mat", {f"track_{part}_info": table})
    with pytest.raises(DataError, match=rf"tracks_{part}_info\.mat: has no tracklet of a person"):
        verify_mars(root)


def test_missing_and_misnamed_tables(root: Path) -> None:
    savemat(info(root) / "query_IDX.mat", {"other": np.ones((1, 1))})
    with pytest.raises(DataError, match=r"query_IDX\.mat: has no table query_IDX"):
        mars_tracklets(root)
    (info(root) / "query_IDX.mat").unlink()
    with pytest.raises(DataError, match=r"query_IDX\.mat: no such table"):
        mars_tracklets(root)


def test_name_that_leads_out(root: Path) -> None:
    (info(root) / "train_name.txt").write_text("../../secret.jpg\n" * 6)
    with pytest.raises(DataError, match="is outside the folder"):
        mars(root)


def test_not_there(tmp_path: Path) -> None:
    assert locate_mars(tmp_path) is None
    with pytest.raises(DataError, match="mars is not in "):
        mars(tmp_path)


@pytest.mark.parametrize(
    ("starts", "stops", "reason"),
    [
        ([0, 2], [2, 2], "tracklet 1"),
        ([0, 2], [2, 4], "tracklet 1"),
        ([-1, 2], [2, 3], "tracklet 0"),
    ],
)
def test_tracklets_must_have_frames(starts: list[int], stops: list[int], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        build(starts, stops)


def test_tracklet_columns_must_fit() -> None:
    assert len(build([0, 2], [2, 3])) == 2
    with pytest.raises(DataError, match="tracklet columns of shapes"):
        build([0, 2, 1], [2, 3])


def test_tracklets_own_their_frames_and_share_none() -> None:
    tracklets = build([2, 0], [3, 1])
    assert tracklets.owners.tolist() == [1, -1, 0]
    assert tracklets.frame_rows(0).tolist() == [2]
    with pytest.raises(DataError, match="tracklets 0 and 1 share frames"):
        build([0, 1], [2, 3])


def build(starts: list[int], stops: list[int]) -> Tracklets:
    return Tracklets(
        frames=ImageFiles(Path("nowhere"), ["a.jpg", "b.jpg", "c.jpg"]),
        starts=np.array(starts),
        stops=np.array(stops),
        person_ids=np.array([1, 2]),
        cameras=np.array([1, 1]),
        is_query=np.array([True, False]),
    )
