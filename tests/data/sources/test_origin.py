from pathlib import Path

import pytest

from imae.data.sources.download import Origin, PackageOrigin, WebOrigin
from imae.data.sources.origins import DebianOrigin, NpmOrigin


def test_an_origin_must_say_its_label_and_fetch() -> None:
    class Silent(Origin):
        def fetch(self, folder: Path) -> tuple[Path, ...]:
            return (folder,)

    with pytest.raises(TypeError, match="abstract"):
        Silent()  # type: ignore[abstract]


@pytest.mark.parametrize("kind", [PackageOrigin, WebOrigin, NpmOrigin, DebianOrigin])
def test_every_kind_is_an_origin(kind: type) -> None:
    assert issubclass(kind, Origin)
