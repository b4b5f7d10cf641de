import pytest

from imae import errors


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.ArgumentError, ValueError),
        (errors.DataError, ValueError),
        (errors.MissingExtraError, ImportError),
    ],
)
def test_each_is_ours_and_a_builtin(error, builtin):
    assert issubclass(error, errors.ImaeError)
    assert issubclass(error, builtin)
