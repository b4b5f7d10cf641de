"""Networks whose weights are divided among the processes, and how to see them whole.

Every process holds a part of each weight, of its gradient and of what the optimiser keeps of it;
a layer is put together for the time that it computes. Files always hold whole tensors, so a run
can go on with another number of processes, or without dividing anything.
"""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def shard_learner(learner: nn.Module, mesh: "DeviceMesh") -> nn.Module:
    """The learner with the weights of its networks divided; its method stays whole.

    Args:
        learner: Has ``networks``.
        mesh: The processes, with a dimension ``data_parallel``.
    """
    networks = learner.networks
    assert isinstance(networks, nn.ModuleList)
    for network in networks:
        shard(network, mesh)
    return learner


def shard(network: nn.Module, mesh: "DeviceMesh") -> None:
    """Divides the weights of a network, each of its parts a unit of its own.

    From then on the network must be called as a module: only that puts weights together.

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
    # Divided again after each pass, the outermost too: between passes all weights are in parts.
    fully_shard(network, mesh=processes, reshard_after_forward=True)


def whole(content: Any) -> Any:
    """Nested content with all divided tensors put together, on the CPU; all ranks must call it."""
    from torch.distributed.tensor import DTensor

    if isinstance(content, DTensor):
        return content.full_tensor().cpu()
    if isinstance(content, Mapping):
        return {key: whole(value) for key, value in content.items()}
    if isinstance(content, list):
        return [whole(value) for value in content]
    return content


def divided(content: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors by name, divided as those of the same names are; all ranks must call it."""
    return {name: _divide(tensor, like[name]) for name, tensor in content.items()}


def divided_optimizer(
    content: Mapping[str, Any], optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """The whole state of an optimiser, divided as its parameters are; all ranks must call it."""
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
    """Scales the gradients down to a norm over all of them, divided ones and others together."""
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
