"""How the rows of a run are prepared, written into its folder for use without its data."""

from dataclasses import dataclass
from typing import Any

from imae.data import Inputs, Table
from imae.data.preparation import describe_preparation, without_rows
from imae.errors import DataError
from imae.records import RunFolder
from imae.train.prepare import Prepared


@dataclass(frozen=True, eq=False)
class Preparation:
    """What one must know to put new rows before the network of a run.

    Args:
        class_names: Names of the classes, in the order of the logits.
        input_shape: Shape of one prepared row.
        described: How rows become inputs, in plain values.
        like: Inputs without rows, prepared as those that new rows are read as.
        features: For a run on features of a frozen network, those without rows, in their scale.
    """

    class_names: tuple[str, ...]
    input_shape: tuple[int, ...]
    described: dict[str, Any]
    like: Inputs
    features: Table | None = None


def describe(prepared: Prepared, network: str | None) -> dict[str, Any]:
    """How the rows of a run are prepared, in plain values for ``RunFolder.write_preparation``.

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
        "input_shape": list(inputs.shape),
        "preparation": described,
    }


def read_preparation(folder: RunFolder) -> Preparation:
    """How the rows of a run are prepared, as its folder says; its data is not needed.

    Raises:
        DataError: If the folder does not say, or what it says is damaged.
    """
    content = folder.preparation()
    path = folder.path / "preparation.json"
    try:
        described = dict(content["preparation"])
        features = None
        like = described
        if described["kind"] == "frozen_features":
            features = without_rows({**described, "kind": "features", "columns": None})
            like = described["images"]
        return Preparation(
            class_names=tuple(map(str, content["class_names"])),
            input_shape=tuple(map(int, content["input_shape"])),
            described=described,
            like=without_rows(like),
            features=features if isinstance(features, Table) else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: is damaged ({error}); train the run again") from error
