"""Configurations from mappings, files and `key=value`."""

import copy
import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from imae.errors import ArgumentError
from imae.train.config import Config

_FEATURES = "data.options.feature_columns"
# Keys below these are not fields: they are passed to the data set, the network or the method.
_FREE = {"data.options", "model.arguments", "method.arguments"}


def build_config(content: Mapping[str, Any]) -> Config:
    """The configuration that nested settings describe.

    Args:
        content: Settings by section, as in ``config.json``; keys left out keep their defaults.

    Raises:
        ArgumentError: If a key is unknown or a value refused; all problems, one line each.

    Examples:
        >>> build_config({"data": {"name": "digits"}, "train": {"epochs": "3"}}).train.epochs
        3
        >>> build_config({"data": {"name": "digits"}, "train": {"epoch": 3}})
        Traceback (most recent call last):
        imae.errors.ArgumentError: train.epoch: unknown key; did you mean train.epochs?
    """
    given: object = content  # from Python anything can come
    if not isinstance(given, Mapping):
        example = {"data": {"name": "digits"}}
        raise ArgumentError(f"settings are a mapping such as {example}, got {content!r}")
    try:
        return Config.model_validate(dict(content))
    except ValidationError as error:
        raise ArgumentError("\n".join(_lines(error))) from None


def read_config_file(path: str | Path) -> dict[str, Any]:
    """The settings in a JSON or TOML file.

    Raises:
        ArgumentError: If the file cannot be read, or is of another kind.
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

    A text is read by the type of the field, so ``optimizer.lr=1`` is fine; ``none`` unsets, and
    lists are written ``schedule.at=32000,48000``.

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
    """Something that can be set.

    Args:
        key: Its name with its section, such as ``optimizer.lr``.
        default: What it is if it is not given; None if that depends, or if it has to be given.
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
        is_shown = isinstance(got, Mapping | BaseModel) or ", got " in message
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


_SMALL_IMAGE = 24
_PHOTO = 96
_WIDE_ROW = 4096  # numbers in a row, such as words of texts
_WIDE_FEATURES, _ROWS_PER_FEATURE = 256, 5


def model_for(shape: Sequence[int], num_rows: int) -> str:
    """Name of a network that suits so many inputs of this shape.

    A network with hidden layers memorises words of texts, and features of a few thousand photos:
    with 3,068 photos and 30% symmetric noise it ended at 50.2% of the held-out given labels, a
    linear one at 58.3%.

    Examples:
        >>> [model_for(shape, 5000) for shape in ((64,), (1, 8, 8), (3, 32, 32), (3, 227, 227))]
        ['mlp', 'small_cnn', 'resnet20', 'resnet50']
        >>> model_for((8192,), 50_000), model_for((1280,), 3000), model_for((1280,), 50_000)
        ('linear', 'linear', 'mlp')
    """
    if len(shape) != 3:
        width = max(shape)
        has_few_rows = width >= _WIDE_FEATURES and num_rows < _ROWS_PER_FEATURE * width
        return "linear" if width > _WIDE_ROW or has_few_rows else "mlp"
    if max(shape[1:]) < _SMALL_IMAGE:
        return "small_cnn"
    return "resnet20" if max(shape[1:]) < _PHOTO else "resnet50"
