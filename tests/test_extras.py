import sys

import pytest

from imae.errors import MissingExtraError, import_extra
from imae.train.processes import fresh_process, start


def test_gives_the_module():
    assert import_extra("json.decoder", extra="data").JSONDecoder


def test_a_missing_one_names_the_install_command():
    with pytest.raises(MissingExtraError, match=r"pip install 'imae\[plot\]'"):
        import_extra("no_such_package.part", extra="plot")


def test_a_package_of_the_users_own_is_named_itself():
    with pytest.raises(MissingExtraError, match=r"pip install no_such_package$"):
        import_extra("no_such_package.part", extra=None)


def test_a_broken_one_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import no_such_package_inside")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package_inside") as caught:
        import_extra("broken_package", extra="plot")
    assert not isinstance(caught.value, MissingExtraError)
    assert "broken_package" not in sys.modules


WITHOUT_TRAIN = """
import os, sys, warnings
os.chdir(FOLDER)
sys.stdout = sys.stderr = open("said.txt", "w")
warnings.simplefilter("ignore")
for name in [*sys.modules]:
    if name.split(".")[0] in ("imae", "pydantic"):
        del sys.modules[name]
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "pydantic":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import numpy
from imae.errors import MissingExtraError
from imae.integrations.boosting import Objective
from imae.integrations.sklearn import IMAEClassifier
IMAEClassifier(max_iter=20, random_state=0).fit(numpy.eye(20), [0, 1] * 10)
if FURTHER:
    from imae.integrations.transformers import loss_function
    loss_function("imae", T=8.0)
from imae.integrations.dynamics import Recorder
try:
    Recorder("run", 2)
except MissingExtraError as error:
    print(error)
"""


@pytest.mark.parametrize("further", ["", pytest.param("transformers", marks=pytest.mark.slow)])
def test_integrations_work_without_what_only_a_run_folder_needs(tmp_path, further):
    if further:
        pytest.importorskip(further)
    said = tmp_path / "said.txt"
    # From a process that has loaded torch, which takes seconds, and has not computed.
    child = fresh_process(exec, WITHOUT_TRAIN, {"FOLDER": str(tmp_path), "FURTHER": further})
    start(child)
    child.join()
    assert "pip install 'imae[train]'" in said.read_text(), said.read_text()
