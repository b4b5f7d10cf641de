import pickle
import re
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from imae.errors import DataError, MissingExtraError
from imae.models.network import CustomNetwork, build
from imae.models.weights import Mismatch, WeightsReport, load_weights


def small(seed: int = 0, num_classes: int = 3) -> nn.Module:
    return build("small_cnn", num_classes=num_classes, seed=seed)


def same(one: nn.Module, two: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), two.state_dict().values(), strict=True)
    return all(torch.equal(left, right) for left, right in pairs)


def save(content: object, path: Path) -> Path:
    if path.suffix == ".safetensors":
        save_file(content, path)
    else:
        torch.save(content, path)
    return path


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_file_of_the_same_network_fits_whole(tmp_path, suffix):
    source, network = small(seed=1), small(seed=2)
    report = load_weights(network, save(source.state_dict(), tmp_path / f"net{suffix}"))
    assert same(network, source)
    assert report.loaded == tuple(source.state_dict())
    assert report.missing == report.unexpected == report.mismatched == ()
    assert str(report).endswith(f"net{suffix}: {len(report.loaded)} of 26 tensors loaded")


def test_the_old_format_of_torch_loads(tmp_path):
    source, network = small(seed=1), small(seed=2)
    torch.save(source.state_dict(), tmp_path / "old", _use_new_zipfile_serialization=False)
    load_weights(network, str(tmp_path / "old"))
    assert same(network, source)


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model", "network"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "_orig_mod.module.", "model."])
def test_nestings_and_prefixes_are_undone(tmp_path, key, prefix):
    source, network = small(seed=1), small(seed=2)
    state = {f"{prefix}{name}": tensor for name, tensor in source.state_dict().items()}
    file = save({"epoch": 3, key: {"model": state}}, tmp_path / "net.pth")
    assert len(load_weights(network, file).loaded) == len(state)
    assert same(network, source)


def test_a_network_whose_own_names_start_with_a_prefix_keeps_them(tmp_path):
    def wrapped(seed: int) -> nn.Module:
        return nn.ModuleDict({"model": small(seed)})

    source, network = wrapped(1), wrapped(2)
    load_weights(network, save(source.state_dict(), tmp_path / "net.pth"))
    assert same(network, source)


@pytest.mark.parametrize("is_wrapped", [True, False])
def test_a_custom_network_takes_its_own_files_and_those_of_its_module(tmp_path, is_wrapped):
    source, module = nn.Linear(4, 3), nn.Linear(4, 3)
    saved = CustomNetwork(source, num_classes=3) if is_wrapped else source
    file = save(saved.state_dict(), tmp_path / "net.pth")
    report = load_weights(CustomNetwork(module, num_classes=3), file)
    assert report.loaded == ("weight", "bias")
    assert same(module, source)


def test_what_does_not_fit_is_listed_and_keeps_its_start(tmp_path):
    source, network = small(seed=1, num_classes=10), small(seed=2)
    start = network.fc.weight.detach().clone()
    state = {**source.state_dict(), "extra": torch.zeros(2)}
    del state["body.0.weight"]
    report = load_weights(network, save(state, tmp_path / "net.pth"))
    assert report.missing == ("body.0.weight",)
    assert report.unexpected == ("extra",)
    assert report.mismatched == (
        Mismatch("fc.weight", in_file=(10, 64), in_network=(3, 64)),
        Mismatch("fc.bias", in_file=(10,), in_network=(3,)),
    )
    assert torch.equal(network.fc.weight, start)
    assert torch.equal(network.body[3].weight, source.body[3].weight)
    assert str(report) == (
        f"{tmp_path}/net.pth: 23 of 26 tensors loaded; of another shape in the file: "
        "fc.weight (10, 64) instead of (3, 64), fc.bias (10,) instead of (3,); "
        "not in the file: body.0.weight; in the file but not in the network: extra"
    )


def test_a_long_list_is_cut():
    names = tuple("abcdefg")
    assert str(WeightsReport("f", ("x",), names, (), ())) == (
        "f: 1 of 8 tensors loaded; not in the file: a, b, c, d, e and 2 more"
    )
    assert str(WeightsReport("f", ("x",), names[:5], (), ())).endswith("a, b, c, d, e")


def test_files_of_old_versions_lack_counters_and_hold_vectors_as_rows(tmp_path):
    source, network = small(seed=1), small(seed=2)
    state = {
        name: tensor.unsqueeze(0) if "body.1." in name else tensor
        for name, tensor in source.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    report = load_weights(network, save(state, tmp_path / "net.pth"))
    assert report.missing == report.mismatched == ()
    assert same(network, source)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.half, torch.double])
def test_other_float_types_become_that_of_the_network(tmp_path, dtype):
    network = nn.Linear(2, 1)
    state = {"weight": torch.tensor([[0.5, 2.0]]).to(dtype), "bias": torch.ones(1).to(dtype)}
    load_weights(network, save(state, tmp_path / "net.pth"))
    assert network.weight.dtype == torch.float32
    assert network.weight.tolist() == [[0.5, 2.0]]


CYCLE: dict[str, object] = {}
CYCLE["model"] = CYCLE

REFUSED = {
    "nothing fits": ({"a": torch.zeros(1), "b": torch.zeros(1)}, "none of its 2 tensors fits"),
    "all of another shape": ({"fc.bias": torch.zeros(9)}, "none of its 1 tensors fits"),
    "no tensors": ({"epoch": 3}, "holds no state dict"),
    "an empty table": ({}, "holds no state dict"),
    "a list": ([torch.zeros(3)], "holds no state dict"),
    "a tensor": (torch.zeros(3), "holds no state dict"),
    "a table inside itself": (CYCLE, "holds no state dict"),
    "complex numbers": ({"fc.bias": torch.zeros(3, dtype=torch.cfloat)}, "holds no state dict"),
    "sparse numbers": ({"fc.bias": torch.zeros(3).to_sparse()}, "holds no state dict"),
    "numbers without values": ({"fc.bias": torch.zeros(3, device="meta")}, "holds no state dict"),
    "NaN": ({"fc.bias": torch.tensor([0, 0, torch.nan])}, "'fc.bias' holds NaN or infinity"),
    "too large": ({"fc.bias": torch.full((3,), 1e300, dtype=torch.double)}, "'fc.bias' holds NaN"),
    "counters alone": (
        {"body.1.num_batches_tracked": torch.tensor(5), "fc.bias": torch.zeros(9)},
        "none of its 2 tensors fits",
    ),
    "a whole network": (nn.Linear(4, 3), "damaged, or holds more than tensors"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_without_use_is_one_line_and_changes_nothing(tmp_path, case):
    content, message = REFUSED[case]
    network = small()
    file = save(content, tmp_path / "net.pth")
    with pytest.raises(DataError, match=rf"^{re.escape(str(file))}: .*{message}") as caught:
        load_weights(network, file)
    assert "\n" not in str(caught.value)
    assert same(network, small())


@pytest.mark.parametrize("name", ["net.pth", "net.safetensors"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x02.", b"\xff" * 4000, b"{}"])
def test_bytes_that_are_no_weights_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: damaged"):
        load_weights(small(), tmp_path / name)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_truncated_file_is_refused_wherever_it_is_cut(tmp_path, suffix):
    network, file = small(), tmp_path / f"net{suffix}"
    whole = save(small(seed=1).state_dict(), file).read_bytes()
    for length in range(1, len(whole), len(whole) // 40):
        file.write_bytes(whole[:length])
        with pytest.raises(DataError, match="damaged"):
            load_weights(network, file)
    assert same(network, small())


def test_flipped_bytes_in_a_tensor_are_seen(tmp_path):
    network, file = small(), tmp_path / "net.pth"
    whole = bytearray(save(small(seed=1).state_dict(), file).read_bytes())
    with zipfile.ZipFile(file) as archive:
        largest = max(archive.infolist(), key=lambda member: member.file_size)
    whole[largest.header_offset + largest.file_size // 2] ^= 1
    file.write_bytes(whole)
    torch.load(file, weights_only=True)  # does not notice
    with pytest.raises(DataError, match="damaged"):
        load_weights(network, file)


def test_a_compressed_archive_is_refused(tmp_path):
    file, packed = save(small().state_dict(), tmp_path / "net.pth"), tmp_path / "packed.pth"
    with (
        zipfile.ZipFile(file) as archive,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as copy,
    ):
        for member in archive.namelist():
            copy.writestr(member, archive.read(member))
    with pytest.raises(DataError, match="damaged"):
        load_weights(small(), packed)


class Gadget:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("form", ["plain", "old", "new", "among tensors"])
def test_a_file_that_would_run_code_runs_none(tmp_path, form):
    mark, file = tmp_path / "ran", tmp_path / "net.pth"
    content = OrderedDict(small().state_dict(), gadget=Gadget(mark))
    if form == "plain":
        file.write_bytes(pickle.dumps(Gadget(mark)))
    elif form == "among tensors":
        torch.save(content, file)
    else:
        torch.save(Gadget(mark), file, _use_new_zipfile_serialization=form == "new")
    with pytest.raises(DataError, match="holds more than tensors"):
        load_weights(small(), file)
    assert not mark.exists()


def test_the_gadget_would_leave_its_mark(tmp_path):
    function, arguments = Gadget(tmp_path / "ran").__reduce__()
    function(*arguments)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "message"), [("absent.pth", "No such file or directory"), ("", "Is a directory")]
)
def test_a_path_without_a_file_is_refused(tmp_path, name, message):
    with pytest.raises(DataError, match=f"{re.escape(str(tmp_path / name))}: {message}"):
        load_weights(small(), tmp_path / name)


def test_without_safetensors_the_command_is_named(tmp_path, monkeypatch):
    file = save(small().state_dict(), tmp_path / "net.safetensors")
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'imae\[data\]'"):
        load_weights(small(), file)
