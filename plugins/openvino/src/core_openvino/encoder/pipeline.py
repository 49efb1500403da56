"""The steps around an encoder in sentence-transformers: prompt, pooling, dense layers, norm.

Read from the files that it writes (versions 2 to 6): modules.json, a folder for each module,
sentence_bert_config.json and config_sentence_transformers.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.errors import InvalidModelError, ModelNotFoundError, UnsupportedModelError
from core.kit.support import unicode_error
from core.models.files import read_json_list
from core.types import Choice
from core_openvino.encoder.config import EncoderConfig
from core_runtime.checkpoint.arrays import StoredTensors
from core_runtime.checkpoint.fields import ConfigFields, JsonFiles
from core_runtime.checkpoint.files import tensor_files
from core_runtime.checkpoint.keys import warn_once
from core_runtime.checkpoint.tensors import FLOATS

Floats = npt.NDArray[np.float32]
MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
_POOLING = "1_Pooling/config.json"
_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_ACTIVATIONS = {
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.linear.Identity": "",
}
_UNLIMITED = 10**9  # transformers writes such a model_max_length for "unknown"


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """A linear layer after pooling, and its activation."""

    weight: Floats
    bias: Floats | None
    activation: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The steps around an encoder.

    ``pooling``: one or several, whose results are joined. ``normed``: embeddings have length 1.
    ``prompt``: text before every text; ``longest``: the most tokens, None if no file says it.
    """

    pooling: tuple[str, ...] = ("mean",)
    dense: tuple[Dense, ...] = ()
    normed: bool = False
    prompt: str = ""
    prompt_name: str = ""
    longest: int | None = None
    lower: bool = False
    source: str = MODULES

    def choices(self) -> tuple[Choice, ...]:
        """Return the steps as users see them."""
        pooling = Choice("pooling", "+".join(self.pooling), self.source)
        norm = Choice("normalize", str(self.normed).lower(), self.source)
        if not self.prompt:
            return pooling, norm, Choice("prompt", "none", f"{PROMPTS} names no default")
        where = f"{PROMPTS}: default_prompt_name is {self.prompt_name!r}"
        return pooling, norm, Choice("prompt", repr(self.prompt), where)


def read_pipeline(directory: Path, config: EncoderConfig, files: JsonFiles) -> Pipeline:
    """Read a directory's steps; without modules.json they are those of sentence-transformers.

    Raises `core.InvalidModelError`, `core.UnsupportedModelError` for a module of another kind.
    """
    own = ConfigFields(
        files.read_if_there("sentence_bert_config.json"),
        str(directory / "sentence_bert_config.json"),
    )
    around = Pipeline(longest=_longest(own, files), lower=own.flag("do_lower_case", False))
    if config.head is not None:
        pooling = "mean" if config.head.mean else "cls"
        return replace(around, pooling=(pooling,), source="config.json")

    name, prompt = _prompt(files)
    around = replace(around, prompt=prompt, prompt_name=name)
    if (directory / MODULES).exists():
        return _steps(directory, config, files, around)
    if files.read_if_there(_POOLING):
        warn_once(f"{directory} has no {MODULES}: only the pooling in {_POOLING} is read")
        modes = _pooling(_config(files, "1_Pooling"), bool(prompt))
        return replace(around, pooling=modes, source=_POOLING)
    warn_once(
        f"{directory} has no {MODULES} and so no pooling: the mean of all tokens is used, as "
        "sentence-transformers does"
    )
    return replace(around, source=f"the default, because there is no {MODULES}")


def _steps(directory: Path, config: EncoderConfig, files: JsonFiles, around: Pipeline) -> Pipeline:
    pooling: tuple[str, ...] = ()
    layers: list[Dense] = []
    normed, width = False, config.hidden_size
    for module in read_json_list(directory / MODULES):
        kind, path = _module(module, directory)
        if kind == "Transformer" and not path:
            continue
        if kind == "Pooling" and not pooling:
            pooling = _pooling(_config(files, path), bool(around.prompt))
            width *= len(pooling)
        elif kind == "Dense" and pooling and not normed:
            layers.append(_dense(_config(files, path), directory / path, width))
            width = len(layers[-1].weight)
        elif kind == "Normalize" and pooling:
            normed = True
        else:
            raise UnsupportedModelError(
                f"{directory / MODULES}: the module {kind!r:.60} in {path!r:.60} is not supported "
                "at this place: only an encoder, then Pooling, Dense and Normalize."
            )
    if not pooling:
        raise UnsupportedModelError(
            f"{directory / MODULES} has no Pooling module. Give a model of sentence embeddings."
        )
    return replace(around, pooling=pooling, dense=tuple(layers), normed=normed)


def _config(files: JsonFiles, path: str) -> ConfigFields:
    """Return the config.json of a module."""
    name = str(Path(path) / "config.json")  # an empty path is the model's own folder
    try:
        return ConfigFields(files.read(name), str(files.directory / name))
    except ModelNotFoundError as error:
        raise InvalidModelError(
            f"{files.directory / MODULES} names a module whose file {name} is missing or cannot "
            "be read. Download the model again."
        ) from error


def _module(module: object, directory: Path) -> tuple[str, str]:
    """Return the last part of a module's class, and its folder, which is inside the directory."""
    record = module if isinstance(module, Mapping) else {}
    kind, path = record.get("type"), record.get("path")
    if not isinstance(kind, str) or not isinstance(path, str):
        raise InvalidModelError(
            f"{directory / MODULES}: a module has no type or path. Download the model again."
        )
    parts = Path(path).parts
    if Path(path).is_absolute() or ".." in parts:
        raise InvalidModelError(f"{directory / MODULES}: {path!r:.60} is outside the directory.")
    return kind.rpartition(".")[2], path.strip("/")


def _pooling(fields: ConfigFields, prompted: bool) -> tuple[str, ...]:
    mode = fields.values.get("pooling_mode")
    modes = [mode] if isinstance(mode, str) else mode
    if modes is None:
        modes = [name for key, name in _POOLINGS.items() if fields.flag(key, False)] or ["mean"]
    if (
        not isinstance(modes, list)
        or not modes
        or any(mode not in _POOLINGS.values() for mode in modes)
    ):
        raise UnsupportedModelError(
            f"{fields.where}: pooling {modes!r:.60} is not supported (supported: "
            f"{', '.join(_POOLINGS.values())})."
        )
    if prompted and not fields.flag("include_prompt", True):
        raise UnsupportedModelError(
            f"{fields.where}: include_prompt=false is not supported with a default prompt."
        )
    return tuple(modes)


def _dense(fields: ConfigFields, folder: Path, width: int) -> Dense:
    activation = str(fields.values.get("activation_function", "torch.nn.modules.activation.Tanh"))
    if activation not in _ACTIVATIONS or fields.flag("use_residual", False):
        raise UnsupportedModelError(
            f"{fields.where}: activation_function={activation!r:.80} or use_residual is not "
            f"supported (supported: {', '.join(_ACTIVATIONS)})."
        )
    stored = StoredTensors(tensor_files(folder), str)
    shapes = {"linear.weight": (fields.integer("out_features"), width)}
    if fields.flag("bias", True):
        shapes["linear.bias"] = shapes["linear.weight"][:1]  # type: ignore[assignment]
    given = {name: shape for name, (kind, shape) in stored.header.items() if kind in FLOATS}
    if given != shapes:
        raise InvalidModelError(
            f"The tensors in {folder} are {dict(stored.header)!s:.200}, but its config.json needs "
            f"floats of these shapes: {shapes}. Download the model again."
        )
    weight, *bias = (np.ascontiguousarray(stored.read(name), np.float32) for name in shapes)
    return Dense(weight, bias[0] if bias else None, _ACTIVATIONS[activation])


def _prompt(files: JsonFiles) -> tuple[str, str]:
    """Return the name and text of the default prompt; empty without one."""
    values = files.read_if_there(PROMPTS)
    name, prompts = values.get("default_prompt_name"), values.get("prompts") or {}
    if name is None:
        return "", ""
    named = isinstance(name, str) and isinstance(prompts, Mapping)
    text = prompts.get(name) if named else None
    if not isinstance(text, str) or unicode_error(text):
        raise InvalidModelError(
            f"{files.directory / PROMPTS}: default_prompt_name is {name!r:.60}, which is not the "
            "name of a text in prompts. Download the model again."
        )
    return str(name), text


def _longest(own: ConfigFields, files: JsonFiles) -> int | None:
    if own.values.get("max_seq_length") is not None:
        return own.integer("max_seq_length")
    longest = files.read_if_there("tokenizer_config.json").get("model_max_length")
    usable = isinstance(longest, int) and not isinstance(longest, bool) and 0 < longest < _UNLIMITED
    return longest if usable else None
