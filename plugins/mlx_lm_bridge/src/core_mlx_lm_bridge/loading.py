"""Opening of a model: start its first worker, which reports the model's facts."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from core import validate
from core.errors import (
    BackendUnavailableError,
    InvalidModelError,
    InvalidOptionError,
    ModelNotFoundError,
)
from core.kit.base import never_stop
from core.kit.chat import FORMATS
from core.kit.support import ASKED, Chosen, asked_integer, chosen_backend, unicode_error
from core.models.files import resolve_path
from core.options import LoadConfig
from core.secret import Secret
from core.types import Choice, ModelInfo
from core_mlx_lm_bridge.availability import ENVIRONMENT, named_interpreter, resolve_interpreter
from core_mlx_lm_bridge.model import BridgeModel
from core_mlx_lm_bridge.probing import checked_config
from core_mlx_lm_bridge.protocol import VERSION, FamilyTemplate, Load, Ok
from core_mlx_lm_bridge.session import WorkerSession, WorkerSettings
from core_mlx_lm_bridge.stream import WorkerLine
from core_mlx_lm_bridge.turns import Turns

WORKER = Path(__file__).with_name("worker.py")

_LOG = logging.getLogger("core_mlx_lm_bridge")
_STEP = 512
_PLAIN = "without null characters and lone surrogates"
_SILENCE_SECONDS = 600.0

# How far one prompt's logits may move between two runs: as core's other MLX backends state it.
_TOLERANCE = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}


def open_model(backend: str, path: str, config: LoadConfig) -> BridgeModel:
    """Load the model in a worker; on failure, no worker is left.

    Raises as `core.Backend.load_model` says.
    """
    python = _interpreter(backend, config)
    settings = _settings(backend, path, config, python)
    session = WorkerSession(settings)
    facts = session.start(never_stop)

    _report_window(path, facts)
    choices = (
        chosen_backend(backend, config),
        Choice("device", facts.device, _device_reason(config)),
        *_blas(facts),
        Choice("dtype", facts.dtype, "the dtype of the weights"),
        python,
        Choice("mlx_lm", facts.mlx_lm, "the version installed for the interpreter"),
        _step(config).choice,
    )
    return BridgeModel(backend, _info(facts), choices, WorkerLine(session, Turns()))


def _report_window(path: str, facts: Ok) -> None:
    """Log a sliding window that mlx-lm ignores and that the context exceeds."""
    window = facts.ignored_window
    if 0 < window < facts.context_length:
        _LOG.warning(
            "mlx-lm ignores sliding_window=%d of %s: beyond %d tokens the output is wrong. Load "
            "the model with context_len=%d, or with another backend if `infer-cli info` shows "
            "one.",
            *(window, path, window, window),
        )


def _settings(backend: str, path: str, config: LoadConfig, python: Choice) -> WorkerSettings:
    model_type = checked_config(path)["model_type"]
    _check_text(path)

    load = Load(
        path=path,
        version=VERSION,
        context_len=config.context_len,
        adapter_path=_adapter(config),
        prefill_step_size=_step(config).value,
        cpu=config.gpu_layers == 0,
        chat_formats=[
            FamilyTemplate(known.mark, known.template)
            for known in FORMATS
            if model_type in known.model_types
        ],
    )

    requested = config.options.get("silence_timeout", _SILENCE_SECONDS)
    silence = validate.real("silence_timeout", requested, 0.0, above=True)
    return WorkerSettings(backend, (python.value, str(WORKER)), _environment(config), load, silence)


def _interpreter(backend: str, config: LoadConfig) -> Choice:
    path = config.options.get("python")
    if path is not None and not (isinstance(path, str | os.PathLike) and os.fspath(path)):
        raise InvalidOptionError("python", path, "the path of a Python interpreter")
    name, reason = named_interpreter(), f"{ENVIRONMENT} names it"
    if path is not None:
        name, reason = os.fsdecode(path), ASKED
    if not name:
        return Choice("python", _own_interpreter(backend), "the interpreter of this process")
    interpreter = resolve_interpreter(name)
    if interpreter is None:
        message = f"{name!r} is not an executable interpreter. Correct the path."
        raise BackendUnavailableError(backend, message)
    return Choice("python", interpreter, reason)


def _own_interpreter(backend: str) -> str:
    if not sys.executable:  # a program that has Python built in
        raise BackendUnavailableError(
            backend,
            "this program does not know its Python interpreter. Set one with "
            f"{ENVIRONMENT} or options={{'python': path}}.",
        )
    return sys.executable


def _environment(config: LoadConfig) -> dict[str, str]:
    requested = config.options.get("env", {})
    if not isinstance(requested, Mapping):
        raise InvalidOptionError("env", requested, "a mapping of strings to strings")
    variables = {name: Secret(value).reveal() for name, value in requested.items()}
    for name, value in variables.items():
        _check_variable(name, value)
    return variables


def _check_variable(name: object, value: object) -> None:
    """Raise for an invalid environment variable. The error hides the value: it may be a secret."""
    if not isinstance(name, str) or not name or "=" in name or not _is_c_string(name):
        raise InvalidOptionError("env", name, f"names that are non-empty strings {_PLAIN}, =")
    if not isinstance(value, str) or not _is_c_string(value):
        raise InvalidOptionError("env", name, f"the value of this variable to be a string {_PLAIN}")


def _is_c_string(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # of a lone surrogate; undecodable bytes of file names raise nothing
        return False


def _step(config: LoadConfig) -> Chosen[int]:
    reason = "cancel is polled between two steps of a long prompt"
    requested = asked_integer(config, "prefill_step_size", 1)
    return requested or Chosen("prefill_step_size", _STEP, reason)


def _adapter(config: LoadConfig) -> str | None:
    if config.adapter_path is None:
        return None
    path = resolve_path(config.adapter_path)
    if not os.path.isfile(os.path.join(path, "adapters.safetensors")):
        raise ModelNotFoundError(
            f"No adapter found in {path!r}: adapters.safetensors is missing. Pass the directory "
            "that mlx_lm.lora wrote; `infer-cli lora export --mlx-lm` converts PEFT adapters."
        )
    _check_text(path)
    return path


def _check_text(path: str) -> None:
    """Raise for a path that is not UTF-8: neither MLX nor the protocol supports it."""
    if unicode_error(path) is not None:
        raise InvalidModelError(
            f"The path {path!r} is not valid UTF-8, which MLX cannot open. Rename it, or make a "
            "link to it with an ASCII name (ln -s)."
        )


def _device_reason(config: LoadConfig) -> str:
    return "requested by gpu_layers=0" if config.gpu_layers == 0 else "MLX's default"


def _blas(facts: Ok) -> tuple[Choice, ...]:
    if sys.platform != "linux" or not facts.device.startswith("cpu"):
        return ()
    if facts.blas:
        return (Choice("blas", facts.blas, "faster than MLX's bundled reference BLAS"),)
    slow = "OpenBLAS and MKL, which are many times faster, were not found: docs/mlx_lm_bridge.md"
    return (Choice("blas", "MLX's bundled BLAS", slow),)


def _info(facts: Ok) -> ModelInfo:
    return ModelInfo(
        architecture=facts.model_type,
        vocab_size=facts.vocab_size,
        num_layers=facts.layers,
        hidden_size=facts.hidden_size,
        quant_bits=facts.quant_bits,
        quant_group=facts.quant_group,
        context_length=facts.context_length,
        logit_tolerance=_TOLERANCE.get(facts.dtype, _TOLERANCE["bfloat16"]),
    )
