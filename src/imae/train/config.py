"""The configuration of a run: what can be set, what it means and what is refused."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from imae.errors import ArgumentError

# Catalogs are imported where a name is checked: they bring torch, which a reader need not have.

FROM_PYTHON = "python:"  # begins the name of a network that was given as a module

Positive = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=False)


class DataConfig(_Section):
    """Which rows a run trains on and measures on."""

    name: str = Field(min_length=1, description="Name of a data set, or a path to your own.")
    root: str | None = Field(default=None, description="Folder that holds a named data set.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Further options of the data set or the layout."
    )
    labels: str | None = Field(
        default=None, description="File of given labels by row id, in place of those in the data."
    )
    rows: Positive | None = Field(
        default=None,
        description="Train on a sample of this many rows, with the same share of each label.",
    )
    trusted: Positive | Literal["validation"] | None = Field(
        default=None,
        description="Rows with labels known to be right, for methods that ask for them: a number "
        "of training rows, where the truth is known, or `validation` for that part of the data.",
    )
    hold_out: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="Part of the given labels held out to choose by; 0 for none.",
    )
    own_validation: bool = Field(
        default=True,
        description="Use the validation part that the data brings along; false holds out training "
        "rows instead, as an audit does.",
    )
    planted: float = Field(
        default=0.0,
        ge=0,
        le=0.2,
        description="Part of the training rows that gets a wrong label on purpose, by which an "
        "audit learns how wrong labels look.",
    )
    features: str | None = Field(
        default=None,
        description="Pretrained network or text embedding whose features replace the rows.",
    )
    workers: int = Field(default=0, ge=0, description="Processes that read and decode ahead.")
    augment: bool = Field(
        default=True, description="Whether images are cropped and mirrored at random."
    )
    balanced: Positive | None = Field(
        default=None,
        description="Rows of each class in a batch, by given label; the rest of the batch size is "
        "other classes.",
    )
    from_python: bool = Field(
        default=False,
        description="Whether the rows were given to `imae.train.train`; set by it.",
    )


class ModelConfig(_Section):
    """The network."""

    name: str | None = Field(
        default=None, description="Network; by default one that suits the data."
    )
    arguments: dict[str, Any] = Field(default_factory=dict, description="Options of the network.")
    init: str | None = Field(default=None, description="File of start weights.")

    @field_validator("name")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is not None and ":" not in name:
            from imae.models.catalog import MODELS

            MODELS.find(name)
        return name


class MethodConfig(_Section):
    """What is optimised."""

    name: str = Field(
        default="imae_capped", description="Loss or method; `imae list methods` shows all."
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="Parameters of the method, such as T."
    )

    @model_validator(mode="after")
    def _known(self) -> "MethodConfig":
        from imae.methods.catalog import METHODS
        from imae.methods.matrix import is_matrix_file

        # Files are read when a run starts: the settings of somebody else's run open none.
        checked = {key: value for key, value in self.arguments.items() if not is_matrix_file(value)}
        try:
            METHODS.build(self.name, **checked)
        except TypeError as error:  # a text where a number belongs
            raise ValueError(f"{self.name}: {error}") from None
        return self


class TrainConfig(_Section):
    """Budget, batches and measuring."""

    epochs: Positive | None = Field(
        default=None, description="Passes over the data [40, without steps]."
    )
    steps: Positive | None = Field(default=None, description="Optimiser steps, instead of epochs.")
    batch_size: Positive | None = Field(
        default=None, description="Rows in a step, over all processes [64, or all rows if fewer]."
    )
    drop_last: bool = Field(default=False, description="Leave out a last batch that is not full.")
    evaluate_every: Positive | None = Field(
        default=None,
        description="Steps between evaluations; by default one at the end of each epoch.",
    )
    evaluate_batch_size: Positive = Field(default=256, description="Rows at once in evaluation.")
    measure_train: bool = Field(
        default=True, description="Measure the training rows too where the true labels are known."
    )
    checkpoint_every: Positive | None = Field(
        default=None,
        description="Steps between checkpoints; by default one at the end of an epoch, if the last "
        "was 10 seconds ago.",
    )
    keep: Positive = Field(default=2, description="Checkpoints that are kept.")
    clip: float | None = Field(
        default=None, gt=0, description="Largest norm of the whole gradient."
    )
    early_stop: Literal["label_wave"] | None = Field(
        default=None,
        description="label_wave: stop after the epoch in which the fewest predictions changed, "
        "before wrong labels are memorised; needs no held-out rows.",
    )
    average: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Decay of a moving average of the weights, such as 0.999.",
    )

    @model_validator(mode="after")
    def _one_budget(self) -> "TrainConfig":
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give epochs or steps, not both")
        return self


class OptimizerConfig(_Section):
    """How steps are taken."""

    name: Literal["sgd", "momentum", "nesterov", "adam", "adam_caffe"] = Field(
        default="nesterov", description="sgd, momentum, nesterov, adam or adam_caffe."
    )
    lr: float = Field(default=0.05, gt=0, lt=1e30, description="Learning rate.")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="For momentum and nesterov.")
    weight_decay: float = Field(default=5e-4, ge=0, description="Weight decay.")
    delta: float = Field(default=1e-8, gt=0, description="What Adam adds to its denominator.")


class ScheduleConfig(_Section):
    """The learning rate over the steps."""

    name: Literal["constant", "steps", "cosine", "one_cycle"] = Field(
        default="cosine", description="constant, steps, cosine or one_cycle."
    )
    at: tuple[Positive, ...] = Field(
        default=(), description="For steps: divide at each of these steps."
    )
    every: Positive | None = Field(
        default=None, description="For steps: divide after every this many steps."
    )
    divide_by: float = Field(default=10.0, gt=1, description="For steps: what to divide by.")
    warm_up: int = Field(default=0, ge=0, description="Steps of linear warm-up.")

    @model_validator(mode="after")
    def _fits(self) -> "ScheduleConfig":
        if (self.name == "steps") != bool(self.at or self.every):
            raise ValueError(
                "`at` or `every` must be given for the schedule steps, and for no other"
            )
        if self.at and self.every:
            raise ValueError("give `at` or `every`, not both")
        if self.name == "one_cycle" and self.warm_up:
            raise ValueError("one_cycle includes a warm-up")
        return self


class MachineConfig(_Section):
    """Where and how the numbers are computed."""

    accelerator: str = Field(default="auto", description="auto, cpu, gpu, mps or tpu.")
    devices: Positive = Field(default=1, description="Processes on each machine, one a device.")
    nodes: Positive = Field(
        default=1, description="Machines; start the command on each with torchrun."
    )
    strategy: Literal["ddp", "fsdp"] = Field(
        default="ddp",
        description="Each of several processes holds the whole network (ddp) or a part of "
        "each weight (fsdp).",
    )
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = Field(
        default="auto", description="32-true, bf16-mixed, 16-mixed, or auto: what is faster."
    )
    compile: bool | None = Field(
        default=None, description="Compile the network [for long runs on a processor]."
    )
    channels_last: bool | None = Field(
        default=None, description="Memory layout for convolutions [where it is faster]."
    )
    threads: Positive | None = Field(
        default=None,
        description="Threads of each process [by the work of a step]; another number gives other "
        "last digits.",
    )

    @model_validator(mode="after")
    def _can_be_divided(self) -> "MachineConfig":
        if self.strategy == "fsdp" and self.channels_last:
            raise ValueError("channels_last needs strategy ddp: parts of weights have no layout")
        if self.strategy == "fsdp" and self.precision == "16-mixed":
            raise ValueError("precision 16-mixed needs strategy ddp; use bf16-mixed")
        return self


class Config(_Section):
    """Everything that decides a run.

    Examples:
        >>> config = Config(data={"name": "digits"}, method={"name": "gce"}, seed=1)
        >>> config.method.name, config.train.batch_size is None
        ('gce', True)
    """

    data: DataConfig
    noise: str | None = Field(default=None, description="Noise to add, such as symmetric:0.4.")
    noise_map: str | None = Field(default=None, description="For pairs noise: FROM:TO,FROM:TO.")
    noise_exact: bool = Field(default=False, description="Change exactly this part of the labels.")
    seed: int = Field(default=123, ge=0, description="Seed of every draw.")
    model: ModelConfig = Field(default_factory=lambda: ModelConfig())
    method: MethodConfig = Field(default_factory=lambda: MethodConfig())
    train: TrainConfig = Field(default_factory=lambda: TrainConfig())
    optimizer: OptimizerConfig = Field(default_factory=lambda: OptimizerConfig())
    schedule: ScheduleConfig = Field(default_factory=lambda: ScheduleConfig())
    machine: MachineConfig = Field(default_factory=lambda: MachineConfig())
    out: str | None = Field(default=None, description="Run folder [runs/NAME-TIME].")
    log: tuple[Literal["csv", "tensorboard", "wandb", "mlflow"], ...] = Field(
        default=(), description="Further logs: csv, tensorboard, wandb, mlflow."
    )

    def resume_command(self, folder: object) -> str:
        """The command that continues a run of these settings in this folder.

        Examples:
            >>> Config(data={"name": "digits"}).resume_command("runs/a")
            'imae train --resume runs/a'
        """
        name = self.model.name or ""
        is_given = name.startswith(FROM_PYTHON)
        if self.data.from_python or is_given:
            data = ", data=..." if self.data.from_python else ""
            return f"imae.train.resume({str(folder)!r}{data}{', model=...' if is_given else ''})"
        code = f" --model {name}" if ":" in name else ""  # a folder by itself imports no code
        return f"imae train --resume {folder}{code}"

    @field_validator("noise")
    @classmethod
    def _known_noise(cls, noise: str | None) -> str | None:
        if noise is None:
            return None
        from imae.noise.catalog import parse

        return str(parse(noise))

    @model_validator(mode="after")
    def _noise_options(self) -> "Config":
        if self.noise is None and (self.noise_map is not None or self.noise_exact):
            raise ArgumentError("noise_map and noise_exact are for noise, and none is given")
        if self.noise is not None and self.data.labels is not None:
            raise ArgumentError(
                "noise and data.labels both say what the given labels are; give one of them"
            )
        return self
