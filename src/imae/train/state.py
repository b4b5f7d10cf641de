"""The state of a run in one object, so that a checkpoint misses no part; its optimiser."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from imae.data import Batches
from imae.errors import ImaeError
from imae.methods.method import Method, Restart
from imae.models.network import Network
from imae.train.config import Config, OptimizerConfig
from imae.train.dynamics import Dynamics, Watch
from imae.train.learner import Learner
from imae.train.machine import divided, divided_optimizer, local, whole
from imae.train.rows import Prepared

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Ranks:
    """The processes that train together.

    Args:
        fabric: Starts and connects them.
    """

    def __init__(self, fabric: "Fabric") -> None:
        self._fabric = fabric
        self.rank: int = fabric.global_rank
        self.number: int = fabric.world_size

    def total(self, tensor: Tensor) -> Tensor:
        """Sum of a tensor over all ranks; all must call it."""
        if self.number == 1:
            return tensor
        summed = self._fabric.all_reduce(tensor.clone(), reduce_op="sum")
        assert isinstance(summed, Tensor)
        return summed

    def gather(self, tensor: Tensor) -> Tensor:
        """Concatenated rows of all ranks; all must call it, each with its own rows."""
        if self.number == 1:
            return tensor
        sizes = torch.zeros(self.number, dtype=torch.int64, device=tensor.device)
        sizes[self.rank] = len(tensor)
        sizes = self.total(sizes)
        before = int(sizes[: self.rank].sum())
        whole = tensor.new_zeros(int(sizes.sum()), *tensor.shape[1:])
        whole[before : before + len(tensor)] = tensor.detach()
        return self.total(whole)

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Gives all ranks the mean of their gradients; all must call it."""
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.copy_(self.total(parameter.grad) / self.number)

    def broadcast_buffers(self, network: nn.Module) -> None:
        """Copies the buffers of the first rank to all: each has the statistics of its share."""
        if self.number > 1:
            for buffer in network.buffers():
                torch.distributed.broadcast(buffer, src=0)


@dataclass(eq=False)
class State:
    """A run in memory.

    Args:
        config: Resolved settings.
        prepared: The rows.
        fabric: Devices, precision and strategy.
        ranks: The processes that train together.
        learner: Networks and method.
        module: The learner as the strategy wraps it.
        optimizer: The optimiser itself.
        wrapped_optimizer: The optimiser as the strategy wraps it.
        batches: Training batches of this rank.
        dynamics: Dynamics of the current epoch so far.
        watch: Checks that numbers stay finite and logits small.
        average: Moving average of the weights, if there is one.
        total_steps: Steps of the whole run.
        restart: When the networks are trained again from new initial weights, if ever.
        is_sharded: Whether the weights of the networks are sharded over the ranks.
        step: Number of steps done.
        loss: Summed loss and weight of the rows since the last evaluation, on this rank.
        seconds: Time of this run before it was resumed.
        step_seconds: The part of the time spent in training steps.
        best_validation: Highest accuracy on the held-out rows so far.
    """

    config: Config
    prepared: Prepared
    fabric: "Fabric"
    ranks: Ranks
    learner: Learner
    module: nn.Module
    optimizer: torch.optim.Optimizer
    wrapped_optimizer: Any
    batches: Batches
    dynamics: Dynamics
    watch: Watch
    average: AveragedModel | None
    total_steps: int
    loss: Tensor
    restart: Restart | None = None
    is_sharded: bool = False
    step: int = 0
    seconds: float = 0.0
    step_seconds: float = 0.0
    best_validation: float = -1.0
    started: float = field(default_factory=time.perf_counter)

    @property
    def method(self) -> Method:
        """What is optimised."""
        return self.learner.method

    @property
    def network(self) -> Network:
        """The network to evaluate: the moving average if there is one."""
        if self.average is None:
            return self.learner.network
        assert isinstance(self.average.module, Network)
        return self.average.module

    @property
    def steps_per_epoch(self) -> int:
        """Steps in an epoch."""
        return len(self.batches)

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files."""
        return self.ranks.rank == 0

    def elapsed(self) -> float:
        """Seconds of training, summed over all resumes."""
        return self.seconds + time.perf_counter() - self.started

    def scaler(self) -> Any | None:
        """The scaler of the loss in half precision, if there is one."""
        return getattr(self.fabric.strategy.precision, "scaler", None)

    def check_weights(self) -> None:
        """Raises if a weight is not finite, before it is saved; all ranks must call it.

        A step can make weights infinite from a finite loss, which the next step would show.

        Raises:
            ImaeError: If one is not; it names remedies.
        """
        weights = local(self.learner.networks.state_dict().values())
        is_bad = not all(bool(each.isfinite().all()) for each in weights)
        if self.ranks.total(self.loss.new_tensor(float(is_bad))) > 0:
            raise ImaeError(
                f"the weights are not finite after {self.step} steps; {self.watch.advice}"
            )

    def capture(self) -> dict[str, Any]:
        """The whole state as tensors and plain values; all ranks must call it."""
        self.method.share()
        self.ranks.broadcast_buffers(self.learner.networks)
        scaler = self.scaler()
        content = {
            "step": self.step,
            "seconds": self.elapsed(),
            "step_seconds": self.step_seconds,
            "best_validation": self.best_validation,
            "has_warned": self.watch.has_warned,
            "num_ranks": self.ranks.number,
            "networks": self.learner.networks.state_dict(),
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": None if self.average is None else self.average.module.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "dynamics": self.ranks.total(self.dynamics.state()),
            "loss": self.ranks.total(self.loss),
        }
        return self.whole(content)

    def whole(self, content: dict[str, Any]) -> dict[str, Any]:
        """The content with all weights gathered, for files; all ranks must call it."""
        return dict(whole(content)) if self.is_sharded else content

    def restore(self, content: dict[str, Any]) -> None:
        """Continues from what ``capture`` returned; sums over ranks go to the first.

        After a failure the state is undefined until another one is restored.

        Raises:
            Exception: Any, if the content does not belong to such a run.
        """
        self._check(content)
        self.step = content["step"]
        self.seconds = content["seconds"]
        self.step_seconds = content["step_seconds"]
        self.best_validation = content["best_validation"]
        self.watch.has_warned = content["has_warned"]
        self._load(self.learner.networks, content["networks"])
        self.method.load_state_dict(content["method"])
        optimizer = content["optimizer"]
        if self.is_sharded:
            optimizer = divided_optimizer(optimizer, self.optimizer)
        self.optimizer.load_state_dict(optimizer)
        for parameter, kept in self.optimizer.state.items():
            for name, value in kept.items():
                if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                    raise ValueError(f"{name} of the optimiser is of shape {tuple(value.shape)}")
        if self.average is not None:
            self._load(self.average.module, content["average"])
        scaler = self.scaler()
        if scaler is not None:
            scaler.load_state_dict(content["scaler"])
        if self.is_first:
            self.dynamics.restore(content["dynamics"])
            self.loss.copy_(content["loss"])

    def _check(self, content: dict[str, Any]) -> None:
        """Raises if a value that nothing else checks does not belong to such a run."""
        for name in ("step", "seconds", "step_seconds", "best_validation"):
            value = content[name]
            is_number = isinstance(value, int if name == "step" else int | float)
            lowest = -1 if name == "best_validation" else 0
            if not is_number or not lowest <= value < math.inf:
                raise ValueError(f"{name} is {value!r}")
        for name, ours in (("dynamics", self.dynamics.state()), ("loss", self.loss)):
            if content[name].shape != ours.shape:
                raise ValueError(f"{name} is of shape {tuple(content[name].shape)}")
        if not all(bool(each.isfinite().all()) for each in content["networks"].values()):
            raise ValueError("its weights are not finite")

    def _load(self, module: nn.Module, weights: dict[str, Tensor]) -> None:
        module.load_state_dict(
            divided(weights, module.state_dict()) if self.is_sharded else weights
        )


def build_optimizer(
    config: OptimizerConfig, network: nn.Module, method: nn.Module
) -> torch.optim.Optimizer:
    """The optimiser of the network's parameters and of those that the method has.

    Those of the method have no weight decay: a transition matrix must not tend to zero.

    Args:
        config: Which optimiser, and its numbers.
        network: Network, or several of them in one module.
        method: What is optimised.
    """
    groups = [{"params": list(network.parameters()), "weight_decay": config.weight_decay}]
    if own := list(method.parameters()):
        groups.append({"params": own, "weight_decay": 0.0})
    if config.name == "adam_caffe":
        return CaffeAdam(groups, lr=config.lr, delta=config.delta)
    if config.name == "adam":
        return torch.optim.Adam(groups, lr=config.lr, eps=config.delta)
    momentum = 0.0 if config.name == "sgd" else config.momentum
    return torch.optim.SGD(
        groups,
        lr=config.lr,
        momentum=momentum,
        nesterov=config.name == "nesterov" and momentum > 0,
    )


class CaffeAdam(torch.optim.Adam):
    """Adam as in Caffe, which the paper's authors used: delta is added to the uncorrected root.

    Formula, with v the running mean of squares after t steps and c = sqrt(1 - beta2^t):

        Caffe: step = lr / (1 - beta1^t) * mean * c / (sqrt(v) + delta)
        torch: step = lr / (1 - beta1^t) * mean / (sqrt(v) / c + delta)

    So it is torch's Adam with ``delta / c`` in place of delta. With the large deltas of the paper,
    0.1 and 1, the first steps are up to 1 / c = 32 times smaller.

    Args:
        parameters: Parameters, or groups of them.
        lr: Learning rate.
        delta: What is added to the root, positive.

    Examples:
        >>> weight = torch.zeros(1, requires_grad=True)
        >>> weight.grad = torch.ones(1)
        >>> CaffeAdam([weight], lr=1.0, delta=0.1).step()
        >>> weight
        tensor([-0.2403], requires_grad=True)

    Reference:
        Kingma and Ba, "Adam", ICLR 2015, section 2, the order of computation at its end.
    """

    def __init__(self, parameters: Any, *, lr: float, delta: float) -> None:
        super().__init__(parameters, lr=lr)
        for group in self.param_groups:
            group["delta"] = delta

    def step(self, closure: Any = None) -> Any:
        """One step."""
        for group in self.param_groups:
            done = max(
                (float(self.state[each].get("step", 0)) for each in group["params"]), default=0
            )
            group["eps"] = group["delta"] / math.sqrt(1 - group["betas"][1] ** (done + 1))
        return super().step(closure)


def averaged(network: nn.Module, decay: float) -> AveragedModel:
    """A copy of a network whose weights follow the original as it is trained.

    Formula:

        average = decay average + (1 - decay) weights, after each step

    Buffers, such as the statistics of batch normalisation, are copied.

    Args:
        network: The network to follow; a copy of it is the start.
        decay: In (0, 1).

    Examples:
        >>> network = nn.Linear(1, 1, bias=False)
        >>> average = averaged(network, decay=0.75)
        >>> with torch.no_grad():
        ...     _ = average.module.weight.fill_(0), network.weight.fill_(1)
        >>> average.update_parameters(network)
        >>> float(average.module.weight)
        0.25
    """
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(decay))
    average.n_averaged.fill_(1)  # at 0 the first update would copy the weights
    return average.requires_grad_(False).eval()
