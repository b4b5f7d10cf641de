"""Devices, precision, threads and strategies, and weights sharded over processes."""

import contextlib
import copy
import datetime
import importlib.metadata
import inspect
import logging
import math
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from imae.errors import ArgumentError, import_extra
from imae.train.config import MachineConfig

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from torch.distributed.device_mesh import DeviceMesh

_MOST_THREADS = 256  # or four for each core: far more of them end the process
_PACKAGES = ("torch", "numpy", "imae", "lightning-fabric")


def describe(device: torch.device, threads: int) -> dict[str, Any]:
    """Versions, device, threads, processor and commit, for ``env.json``.

    Args:
        device: Where the run computes.
        threads: Threads of each process.
    """
    return {
        "python": platform.python_version(),
        **{name.replace("-", "_"): importlib.metadata.version(name) for name in _PACKAGES},
        "device": _device_name(device),
        "threads": threads,
        "cpu": _cpu_name(),
        "commit": _commit(),
        "platform": platform.platform(),
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


@contextlib.contextmanager
def pinned(threads: int, device: torch.device) -> Iterator[None]:
    """Sets the number of threads for the block, and restores the random state after it.

    Each step seeds the global generator, which networks with dropout draw from; afterwards it is
    restored. On an accelerator, nondeterministic algorithms are avoided.
    """
    before = torch.get_num_threads()
    mode = torch.get_deterministic_debug_mode()
    devices = [device.index or 0] if device.type == "cuda" else []
    torch.set_num_threads(threads)
    if device.type != "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        torch.set_num_threads(before)
        torch.set_deterministic_debug_mode(mode)


# Operations of a step up to which one thread is taken, so that parallel runs have a core each. On
# two idle cores a second thread saves up to 44% of such a step, and 41 to 49% of a larger one
# (benchmarks/threads.py).
SMALL_WORK = 1e9
# From here on a step of convolutions is faster on a CPU in bfloat16 and channels last: one of
# ResNet-20 with 128 rows (31e9 operations) takes 0.27 s of one core, not 0.53 s
# (benchmarks/train.py).
_LARGE_WORK = 5e9
# Compiled steps take 0.25 s, and compiling takes a minute: worth it from about 10,000 steps on.
_LONG_WORK = 6e14


def chosen_machine(
    machine: MachineConfig,
    networks: Sequence[nn.Module],
    row: Tensor,
    *,
    batch_size: int,
    total_steps: int,
    device: torch.device,
    may_change_format: bool,
) -> MachineConfig:
    """The settings of the machine; those left open are chosen by the work of a step.

    Only CPUs have been measured. ``may_change_format``: whether another format than float32
    can be used; ``row``: one row, shape (1, ...).

    Raises:
        ArgumentError: If there are so many threads that the process would be killed.
    """
    most = max(_MOST_THREADS, 4 * (os.cpu_count() or 1))
    if machine.threads is not None and machine.threads > most:
        raise ArgumentError(
            f"machine.threads: {machine.threads} is more than {most}, the most here"
        )
    if machine.precision != "auto" and None not in machine.model_dump().values():
        return machine
    work = 3 * batch_size * sum(operations(network, row) for network in networks)
    has_layers = any(isinstance(each, nn.Conv2d) for one in networks for each in one.modules())
    is_large = device.type == "cpu" and has_layers and work >= _LARGE_WORK
    is_fast = is_large and may_change_format and has_bfloat16()
    has_compiler = any(map(shutil.which, ("g++", "c++", "clang++")))
    changes: dict[str, Any] = {}
    if machine.threads is None:
        changes["threads"] = 1 if work < SMALL_WORK else torch.get_num_threads()
    if machine.precision == "auto":
        changes["precision"] = "bf16-mixed" if is_fast else "32-true"
    if machine.channels_last is None:
        changes["channels_last"] = is_large and machine.strategy == "ddp"
    if machine.compile is None:
        changes["compile"] = is_fast and has_compiler and work * total_steps >= _LONG_WORK
    return machine.model_copy(update=changes)


def has_bfloat16() -> bool:
    """Whether the processor has instructions for products in bfloat16."""
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def operations(network: nn.Module, row: Tensor) -> int:
    """Multiplications and additions of one pass of a row, shape (1, ...), through a network."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad(), torch.random.fork_rng(devices=[]):
        copy.deepcopy(network).eval()(row)
    return int(counter.get_total_flops())


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def _cpu_name() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of imae, if it is run from its own repository and not from a user's."""
    source = Path(__file__).parents[1]
    command = ["git", "-C", str(source), "rev-parse", "--show-toplevel", "HEAD"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    root, commit = run.stdout.splitlines()
    # imae installed inside a repository of the user is elsewhere below its root.
    return commit if Path(root, "src", "imae") == source else None


def shard_learner(learner: nn.Module, mesh: "DeviceMesh") -> nn.Module:
    """The learner with the weights of its networks sharded; its method stays whole."""
    networks = learner.networks
    assert isinstance(networks, nn.ModuleList)
    for network in networks:
        shard(network, mesh)
    return learner


def shard(network: nn.Module, mesh: "DeviceMesh") -> None:
    """Shards the weights of a network, each of its parts as a separate unit.

    From then on the network must be called as a module: only then are the weights gathered.

    Args:
        network: Changed in place.
        mesh: The processes, with a dimension ``data_parallel``.
    """
    from torch.distributed.fsdp import fully_shard

    processes = mesh["data_parallel"]
    for part in network.children():
        is_called = type(part).forward is not nn.Module.forward  # a list of modules is not
        if is_called and any(True for _ in part.parameters()):
            fully_shard(part, mesh=processes, reshard_after_forward=True)
    # Sharded again after each pass, including the outermost part.
    fully_shard(network, mesh=processes, reshard_after_forward=True)


# torch's get_state_dict and set_state_dict are not used: they key an optimiser's state by the names
# of parameters, and a checkpoint here has the same format with sharded weights and without.


def whole(content: Any) -> Any:
    """Nested content with all sharded tensors gathered, on the CPU; all ranks must call it."""
    from torch.distributed.tensor import DTensor

    if isinstance(content, DTensor):
        return content.full_tensor().cpu()
    if isinstance(content, Mapping):
        return {key: whole(value) for key, value in content.items()}
    if isinstance(content, list):
        return [whole(value) for value in content]
    return content


def local(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The floating point tensors; of sharded ones the part that this rank has."""
    from torch.distributed.tensor import DTensor

    parts = [each.to_local() if isinstance(each, DTensor) else each for each in tensors]
    return [each for each in parts if each.is_floating_point()]


def divided(content: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors by name, sharded like those of the same names; all ranks must call it."""
    return {name: _divide(tensor, like[name]) for name, tensor in content.items()}


def divided_optimizer(
    content: Mapping[str, Any], optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """The whole state of an optimiser, sharded like its parameters; all ranks must call it."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    state = {
        index: {
            name: _divide(value, parameters[index])
            if isinstance(value, Tensor) and value.shape == parameters[index].shape
            else value
            for name, value in kept.items()
        }
        for index, kept in content["state"].items()
    }
    return {**content, "state": state}


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> None:
    """Scales all gradients, sharded ones and others together, down to a norm."""
    from torch.distributed.tensor import DTensor

    gradients = [each.grad for each in parameters if each.grad is not None]
    parts = [each for each in gradients if isinstance(each, DTensor)]
    wholes = [each for each in gradients if not isinstance(each, DTensor)]
    norms = [torch.nn.utils.get_total_norm(group) for group in (parts, wholes) if group]
    norm = math.hypot(*(float(whole(each)) for each in norms))
    factor = max_norm / (norm + 1e-6)  # as torch's own clipping has it, so that both do the same
    if factor < 1:
        for gradient in gradients:
            gradient.mul_(factor)


def _divide(tensor: Tensor, like: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)


def build_fabric(machine: MachineConfig) -> "Fabric":
    """Devices, precision and strategy, ready to use.

    Raises:
        ArgumentError: If the machine does not have the requested devices or precision.
        MissingExtraError: If lightning-fabric is not installed.
    """
    fabric_module = import_extra("lightning_fabric", extra="train")
    strategies = import_extra("lightning_fabric.strategies", extra="train")
    # After the import, which makes it log every rank and number format.
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    is_single = machine.devices * machine.nodes == 1
    try:
        fabric: Fabric = fabric_module.Fabric(
            accelerator=machine.accelerator,
            devices=machine.devices,
            num_nodes=machine.nodes,
            strategy="auto" if is_single else _strategy(machine, strategies),
            precision="32-true" if machine.precision == "auto" else machine.precision,
        )
    except (ValueError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ArgumentError(f"machine: {reason}") from error
    fabric.launch()
    return fabric


def _strategy(machine: MachineConfig, strategies: Any) -> Any:
    if machine.strategy == "ddp":
        return strategies.DDPStrategy(**_without_buffer_sync())
    number = machine.devices * machine.nodes
    return strategies.ModelParallelStrategy(
        shard_learner, data_parallel_size=number, tensor_parallel_size=1
    )


def _without_buffer_sync() -> dict[str, bool]:
    """Buffers of a method differ by rank; those of networks are broadcast when needed."""
    takes = inspect.signature(DistributedDataParallel.__init__).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in takes else "broadcast_buffers"
    return {name: False}


def sum_dtype(device: torch.device) -> torch.dtype:
    """The dtype in which losses are summed: double precision if the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64
