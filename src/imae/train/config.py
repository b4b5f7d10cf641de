"""The configuration of a run: its settings, their validation, and how they are read and changed."""

import copy
import difflib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from imae._draws import DEFAULT_SEED
from imae.errors import ArgumentError

# Catalogs are imported where a name is checked: they import torch, which may not be installed.

TWO_CLASS_CLIP = 1.0  # what `train.clip` is with two classes, unless it is set
FROM_PYTHON = "python:"  # begins the name of a network that was given as a module

Positive = Annotated[int, Field(ge=1)]
_FEATURES = "data.options.feature_columns"
# Keys below these are not fields: they are passed to the data set, the network or the method.
_FREE = {"data.options", "model.arguments", "method.arguments"}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=False)

    @model_validator(mode="before")
    @classmethod
    def _plain_values(cls, content: Any) -> Any:
        return _plain(content)


def _plain(value: Any) -> Any:
    """The value with paths as texts and numbers of numpy or torch as those of Python."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value


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
        description="Rows with labels known to be right, for methods that need them: a number "
        "of training rows, where the truth is known, or `validation` for that part of the data.",
    )
    hold_out: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="Share of the training rows held out, with their given labels, to choose the "
        "best epoch; 0 for none.",
    )
    own_validation: bool = Field(
        default=True,
        description="Use the validation part that comes with the data; false holds out training "
        "rows instead, as an audit does.",
    )
    planted: float = Field(
        default=0.0,
        ge=0,
        le=0.2,
        description="Share of the training rows that get a wrong label on purpose, which show "
        "an audit what wrong labels look like.",
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
        description="Rows of each class in a batch, by given label; batch_size / balanced classes "
        "are in a batch.",
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
    init: str | None = Field(default=None, description="File of initial weights.")

    @field_validator("name")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is not None and ":" not in name:
            from imae.models.catalog import MODELS

            MODELS.find(name)
        return name


class MethodConfig(_Section):
    """The loss or method that is optimised."""

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

        # Files are read when a run starts: reading the settings of someone else's run opens none.
        checked = {key: value for key, value in self.arguments.items() if not is_matrix_file(value)}
        try:
            METHODS.build(self.name, **checked)
        except TypeError as error:  # text where a number is expected
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
    evaluate_batch_size: Positive = Field(default=256, description="Rows in a batch of evaluation.")
    measure_train: bool = Field(
        default=True, description="Measure the training rows too where the true labels are known."
    )
    checkpoint_every: Positive | None = Field(
        default=None,
        description="Steps between checkpoints; by default at the end of an epoch, if the last one "
        "is at least 10 seconds old.",
    )
    keep: Positive = Field(default=2, description="Checkpoints that are kept.")
    clip: float | None = Field(
        default=None,
        gt=0,
        description="Largest norm of the whole gradient [1 with two classes, else none].",
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
    delta: float = Field(default=1e-8, gt=0, description="Added to the denominator of Adam.")


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
    warm_up: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="Steps of linear warm-up [with two classes 40, or an eighth of a short run; "
        "else none].",
    )

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
    devices: Positive = Field(default=1, description="Processes on each machine, one per device.")
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
        description="Threads of each process [by the work of a step]; another number changes "
        "the last digits of results.",
    )

    @model_validator(mode="after")
    def _check_sharding(self) -> "MachineConfig":
        if self.strategy == "fsdp" and self.channels_last:
            raise ValueError("channels_last needs strategy ddp: parts of weights have no layout")
        if self.strategy == "fsdp" and self.precision == "16-mixed":
            raise ValueError("precision 16-mixed needs strategy ddp; use bf16-mixed")
        return self


class Config(_Section):
    """Everything that determines a run.

    Examples:
        >>> config = Config(data={"name": "digits"}, method={"name": "gce"}, seed=1)
        >>> config.method.name, config.train.batch_size is None
        ('gce', True)
    """

    data: DataConfig
    noise: str | None = Field(default=None, description="Noise to add, such as symmetric:0.4.")
    noise_map: str | None = Field(default=None, description="For pairs noise: FROM:TO,FROM:TO.")
    noise_exact: bool = Field(default=False, description="Change exactly this share of the labels.")
    seed: int = Field(default=DEFAULT_SEED, ge=0, lt=2**64, description="Random seed.")
    model: ModelConfig = Field(default_factory=lambda: ModelConfig())
    method: MethodConfig = Field(default_factory=lambda: MethodConfig())
    train: TrainConfig = Field(default_factory=lambda: TrainConfig())
    optimizer: OptimizerConfig = Field(default_factory=lambda: OptimizerConfig())
    schedule: ScheduleConfig = Field(default_factory=lambda: ScheduleConfig())
    machine: MachineConfig = Field(default_factory=lambda: MachineConfig())
    out: str | None = Field(default=None, description="Run folder [runs/NAME-TIME].")
    log: tuple[Literal["csv", "tensorboard", "wandb", "mlflow"], ...] = Field(
        default=(), description="Additional logs: csv, tensorboard, wandb, mlflow."
    )

    def resume_command(self, folder: object) -> str:
        """The command that continues a run of these settings in this folder.

        Examples:
            >>> Config(data={"name": "digits"}).resume_command("runs/a")
            'imae train --resume runs/a'
            >>> Config(data={"name": "digits"}).resume_command("my run")
            "imae train --resume 'my run'"
        """
        name = self.model.name or ""
        is_given = name.startswith(FROM_PYTHON)
        if self.data.from_python or is_given:
            data = ", data=..." if self.data.from_python else ""
            return f"imae.train.resume({str(folder)!r}{data}{', model=...' if is_given else ''})"
        code = ["--model", name] if ":" in name else []  # a folder by itself imports no code
        return shlex.join(["imae", "train", "--resume", str(folder), *code])

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
            raise ArgumentError("noise_map and noise_exact need noise, and no noise is given")
        if self.noise is not None and self.data.labels is not None:
            raise ArgumentError(
                "noise and data.labels both define the given labels; give only one of them"
            )
        return self


def build_config(content: Mapping[str, Any]) -> Config:
    """The configuration that nested settings describe.

    Args:
        content: Settings by section, as in ``config.json``; keys left out keep their defaults.

    Raises:
        ArgumentError: If a key is unknown or a value is refused; all problems, one line each.

    Examples:
        >>> build_config({"data": {"name": "digits"}, "train": {"epochs": "3"}}).train.epochs
        3
        >>> build_config({"data": {"name": "digits"}, "train": {"epoch": 3}})
        Traceback (most recent call last):
        imae.errors.ArgumentError: train.epoch: unknown key; did you mean train.epochs?
    """
    given: object = content  # callers may pass anything
    if not isinstance(given, Mapping):
        example = {"data": {"name": "digits"}}
        got = repr(given) if isinstance(given, str) else type(given).__name__
        raise ArgumentError(
            f"settings are a mapping such as {example}, got {got}; rows are given as data=..."
        )
    try:
        return Config.model_validate(dict(content))
    except ValidationError as error:
        raise ArgumentError("\n".join(_lines(error))) from None


def read_config_file(path: str | Path) -> dict[str, Any]:
    """The settings in a JSON or TOML file.

    Raises:
        ArgumentError: If the file cannot be read, or is neither JSON nor TOML.
    """
    path = Path(path)
    try:
        text = path.read_text("utf-8-sig")  # Windows programs write a byte order mark
        if path.suffix == ".json":
            content = json.loads(text)
        elif path.suffix == ".toml":
            content = _parse_toml(text)
        else:
            raise ArgumentError(f"{path}: a configuration is a .json or .toml file")
    except ArgumentError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{path}: cannot be read ({error})") from None
    if not isinstance(content, dict):
        raise ArgumentError(f"{path}: must hold an object of settings")
    return content


def with_settings(content: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Settings with some of them replaced by texts such as ``optimizer.lr=0.05``.

    A text is parsed by the type of the field, so ``optimizer.lr=1`` is fine; ``none`` unsets a
    setting, and lists are written ``schedule.at=32000,48000``.

    Raises:
        ArgumentError: If a text has another form; `build_config` checks whether keys are known.

    Examples:
        >>> with_settings({"seed": 1}, ["seed=2", "train.epochs=3"])
        {'seed': '2', 'train': {'epochs': '3'}}
    """
    result = json.loads(json.dumps(content, default=str))  # TOML knows dates, which no setting is
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise ArgumentError(f"{setting!r}: write settings as key=value")
        _put(result, key.strip().split("."), _value(key.strip(), text.strip()))
    return dict(result)


def with_values(content: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with some of them replaced by values, which keep their type.

    Args:
        content: Nested settings.
        values: Values by dotted key; None for those that are not given.

    Examples:
        >>> with_values({"seed": 1}, {"seed": None, "train.epochs": 3, "out": Path("none")})
        {'seed': 1, 'train': {'epochs': 3}, 'out': 'none'}
    """
    result = copy.deepcopy(dict(content))
    for key, value in values.items():
        if value is not None:
            _put(result, key.split("."), str(value) if isinstance(value, Path) else value)
    return result


class Setting(NamedTuple):
    """A setting of a run.

    Args:
        key: Its name with its section, such as ``optimizer.lr``.
        default: Its default; None if that depends on other things, or if it must be given.
        meaning: One sentence.
    """

    key: str
    default: Any
    meaning: str


def known_settings() -> tuple[Setting, ...]:
    """Everything that can be set, in the order of the sections.

    Examples:
        >>> known_settings()[0]
        Setting(key='data.name', default=None, meaning='Name of a data set, or a path to your own.')
    """
    return tuple(_settings(Config, ""))


def chosen_settings(config: Config) -> dict[str, str]:
    """Every setting of a configuration that is not None or empty, as text, by its key."""
    content = config.model_dump(mode="json")
    chosen = {}
    for key, *_ in known_settings():
        value = content
        for part in key.split("."):
            value = value[part]
        if value not in (None, {}, []):
            chosen[key] = str(value)
    return chosen


def _settings(section: type[BaseModel], prefix: str) -> Iterator[Setting]:
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _settings(field.annotation, f"{prefix}{name}.")
        else:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            yield Setting(f"{prefix}{name}", default, field.description or "")


def _value(key: str, text: str) -> Any:
    if text.lower() in ("none", "null"):
        return None
    if key in ("schedule.at", "log") or (key == _FEATURES and not text.startswith("[")):
        return [part for part in text.split(",") if part]
    if key.startswith("data.options.") and key.endswith("_column"):
        return text  # the name of a column may look like a number
    if key.rpartition(".")[0] in _FREE:  # no field says which type: a number if it looks like one
        try:
            return json.loads(text.lower() if text.lower() in ("true", "false") else text)
        except (ValueError, RecursionError):
            return text
    return text


def _put(content: dict[str, Any], parts: Sequence[str], value: Any) -> None:
    for part in parts[:-1]:
        if not isinstance(content.get(part), dict):
            content[part] = {}
        content = content[part]
    content[parts[-1]] = value


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        import tomllib
    except ModuleNotFoundError:
        raise ArgumentError("TOML needs Python 3.11 or newer; write the file as JSON") from None
    return tomllib.loads(text)


def _lines(error: ValidationError) -> list[str]:
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            lines.append(_unknown(key))
            continue
        if problem["type"] == "missing":
            lines.append(f"{key}: must be given{_MISSING.get(key, '')}")
            continue
        message = problem["msg"].removeprefix("Value error, ")
        got = problem["input"]
        is_named = ", got " in message or message.startswith("unknown ")
        is_shown = is_named or isinstance(got, Mapping | BaseModel)
        shown = "" if is_shown else f", got {got!r}"
        lines.append(f"{key}: {message}{shown}" if key else message)
    return lines


_MISSING = {"data": ", such as data.name=digits", "data.name": ": a data set, or a path"}


def _unknown(key: str) -> str:
    keys = [setting.key for setting in known_settings()]
    known = list(dict.fromkeys([*keys, *Config.model_fields]))
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if not near:  # the right name in the wrong section
        last = key.rpartition(".")[2]
        near = [each for each in known if each.rpartition(".")[2] == last]
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(keys)}"
    return f"{key}: unknown key; {hint}"
