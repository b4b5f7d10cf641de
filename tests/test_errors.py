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


def test_a_message_of_many_lines_is_cut_to_one():
    line = errors.in_one_line(RuntimeError("cannot compile\n" + "warning: x\n" * 10_000))
    assert line.startswith("RuntimeError: cannot compile warning: x")
    assert line.endswith(" ...")
    assert len(line) < 500
