"""Keys of a model's files that mlx-lm silently ignores although they change its output.

mlx-lm reads the keys of config.json that its code for the model type names, and the end tokens of
generation_config.json. The keys here, and the models with sliding windows, were taken from
transformers 5.24; the names that the installed mlx-lm reads are looked up in its code.

Imports only the standard library, because the worker reads it as well.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_mlx_lm_bridge.model_code import ModelCode, model_code

Values = Mapping[str, Any]

GENERATION_FILE = "generation_config.json"
_LARGEST = 2**24  # bytes of a configuration file
_KEYS: Mapping[str, tuple[object, ...]] = {
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "is_causal": (None, True),
    "partial_rotary_factor": (None, 1),
    "use_bidirectional_attention": (None, False, "vision"),  # between the patches of an image
}
"""Keys that change the computation, each with the values at which it does not."""
_WRITTEN_DOWN = {
    "partial_rotary_factor": ("glm", "gpt_neox", "mistral4", "recurrent_gemma"),
    "final_logit_softcapping": ("nanochat",),
}
"""Modules that do not read a key, because they have the published models' value."""
_BANS = (
    *("suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "sequence_bias"),
    *("forced_bos_token_id", "forced_eos_token_id", "forced_decoder_ids"),
    *("force_words_ids", "constraints"),
)

_NEUTRAL_ROPES = ("default", "mrope", "dynamic")
"""Rope types whose absence shows in images alone, or beyond the context."""
_ROPE_NAMES = {"longrope": ("longrope", "suscaled"), "su": ("longrope", "suscaled")}
_ACTIVATIONS = {"silu": ("silu", "swiglu"), "gelu": ("gelu", "geglu"), "relu": ("relu",)}
"""Activations, and parts of the names of functions that compute them."""

_SWITCHED = ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe", "smollm3")
"""Models with windows where use_sliding_window is true, from layer max_window_layers on."""
_WINDOWED = (
    *("gemma2", "mistral", "ministral", "ministral3", "mixtral", "minimax", "phi3", "phimoe"),
    "starcoder2",
)
_DEFAULT_WINDOW = {"gemma2": 4096}
_PATTERNS = {"cohere2": 4, "gemma3_text": 6}
"""Modules that give every n-th layer no window, and do not read layer_types; n by default."""


@dataclass(frozen=True)
class Ignored:
    """The keys of one model's files that mlx-lm ignores, as written there, and its window.

    ``window`` is the number of tokens up to which an ignored sliding window changes nothing; 0 if
    no window is ignored.
    """

    keys: tuple[str, ...] = ()
    window: int = 0


def ignored(package: Path, directory: str | Path, config: Values) -> Ignored:
    """Return what the mlx-lm in this folder ignores of a model. Nothing if it has no code for it.

    A load reports a missing module itself.
    """
    inner = config.get("text_config")
    text = {**config, **inner} if isinstance(inner, Mapping) else config
    code = model_code(package, str(config.get("model_type")))
    if code is None:
        return Ignored()
    part = model_code(package, str(text.get("model_type")))
    if part is not None and part.name in code.modules:
        code = part
    keys = [*_keys(text, code), *_ropes(text, code), *_activation(text, code)]
    shown = [_shown(name, value, "config.json") for name, value in keys]
    generation = _generation_config(directory)
    shown += [
        _shown(name, generation[name], GENERATION_FILE) for name in _BANS if generation.get(name)
    ]
    return Ignored(tuple(shown), _window(text, code))


def refusal_of(keys: tuple[str, ...]) -> str:
    """Return the reason why a model with such keys is refused, and the next step."""
    return (
        f"mlx-lm ignores {', '.join(keys)}, so its output would be wrong. Check with "
        "`infer-cli info` whether another backend loads the model, or remove the key in a copy of "
        "that file."
    )


def _generation_config(directory: str | Path) -> Values:
    return small_json(Path(directory) / GENERATION_FILE)


def small_json(file: Path) -> Values:
    """Return the object in a configuration file; an empty one if it is not a small regular file."""
    try:
        status = file.stat()  # a pipe would be waited for, and a device never ends
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return {}
        config = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, Mapping) else {}


def _keys(text: Values, code: ModelCode) -> Iterator[tuple[str, object]]:
    for name, neutral in _KEYS.items():
        value = _rotated(text) if name == "partial_rotary_factor" else text.get(name)
        known = name in code.reads or code.name in _WRITTEN_DOWN.get(name, ())
        if value not in neutral and not known:
            yield name, value


def _rotated(text: Values) -> object:
    """Return the fraction of an attention head that RoPE rotates.

    transformers 5 has it among the keys of RoPE.
    """
    rope = text.get("rope_parameters")
    sections = [rope, *rope.values()] if isinstance(rope, Mapping) else []
    sections = [*sections, text]
    parts = (part.get("partial_rotary_factor") for part in sections if isinstance(part, Mapping))
    return next((part for part in parts if part is not None), None)


def _ropes(text: Values, code: ModelCode) -> Iterator[tuple[str, object]]:
    for name in ("rope_scaling", "rope_parameters"):
        section = text.get(name)
        if isinstance(section, Mapping):
            kinds = [kind for kind in (section, *section.values()) if isinstance(kind, Mapping)]
            if not all(_builds(code, kind) for kind in kinds):
                yield name, section
                return


def _builds(code: ModelCode, rope: Values) -> bool:
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    if kind in _NEUTRAL_ROPES:
        return True
    reads = bool({"rope_scaling", "rope_parameters"} & code.reads)
    by_name = code.mentions(_ROPE_NAMES.get(kind, (kind,)))
    return reads and (by_name or "initialize_rope" in code.reads)


def _activation(text: Values, code: ModelCode) -> Iterator[tuple[str, object]]:
    """Yield the activation if the code computes another one."""
    for name in ("hidden_activation", "hidden_act", "activation_function"):
        if (value := text.get(name)) is not None:
            spelled = str(value).replace("swish", "silu")
            wanted = {kind for kind in _ACTIVATIONS if kind in spelled}
            has = {kind for kind, parts in _ACTIVATIONS.items() if code.mentions(parts)}
            if name not in code.reads and wanted and has and not wanted & has:
                yield name, value
            return


def _window(text: Values, code: ModelCode) -> int:
    kind = str(text.get("model_type"))
    window = _count(text.get("sliding_window", _DEFAULT_WINDOW.get(kind)))
    layers = text.get("layer_types")
    if not window or not _slides(text, kind):
        return 0
    if "sliding_window" not in code.reads:
        return window
    if "layer_types" in code.reads:
        return 0 if layers or kind not in _WINDOWED else window
    pattern = _PATTERNS.get(code.name)
    follows = pattern is None or not layers or _follow(layers, text, pattern)
    return 0 if follows else window


def _slides(text: Values, kind: str) -> bool:
    """Return whether any layer has a window in transformers."""
    if kind in _SWITCHED and not text.get("use_sliding_window"):
        return False
    if isinstance(layers := text.get("layer_types"), Sequence):
        return "sliding_attention" in layers
    if kind in _SWITCHED and kind != "qwen3_moe":  # which has them in all layers
        return _count(text.get("max_window_layers")) < _count(text.get("num_hidden_layers"))
    return kind in _SWITCHED or kind in _WINDOWED


def _follow(layers: Sequence[object], text: Values, default: int) -> bool:
    old = text.get("_sliding_window_pattern")
    period = _count(text.get("sliding_window_pattern", old)) or default
    return all(
        (name == "sliding_attention") == (place % period != 0)
        for place, name in enumerate(layers, 1)
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _shown(name: str, value: object, file: str) -> str:
    words = json.dumps(value, default=str)
    return f"{name}={words if len(words) <= 80 else words[:79] + '…'} in {file}"
