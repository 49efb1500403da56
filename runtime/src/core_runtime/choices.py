"""Settings that several backends choose at load, with reasons; the user's values win."""

from __future__ import annotations

from core import validate
from core.kit.support import ASKED, Chosen, asked_integer
from core.options import LoadConfig
from core.types import Choice
from core_runtime.machine import usable_cores
from core_runtime.processor import fast_bfloat16_instructions, int8_instructions

_PREFIX_SHARE = 16  # the prefix cache gets one sixteenth of the free memory
_UNKNOWN_PREFIXES, _MOST_PREFIXES = 256 << 20, 1 << 30  # bytes


def suits_dense(flags: frozenset[str]) -> Choice:
    """Return the recommendation for dense float32 weights on a CPU with these ``flags``."""
    if faster := _openvino_is_faster(flags):
        return Choice(
            "suits",
            "training, adapters, hidden states of every layer",
            f"{faster}; a GGUF file of the same model chats faster, with llama_cpp",
        )
    return Choice(
        "suits",
        "classify and score",
        "on a CPU a GGUF file of the same model chats 2.4 to 3.3 times as fast, with llama_cpp",
    )


def suits_llama_cpp(flags: frozenset[str]) -> Choice:
    """Return the recommendation for llama.cpp on a CPU with these ``flags``."""
    others = (
        "on a CPU the same model as safetensors classifies 1.4 to 2.3 times as fast, with mlx_cpu"
    )
    return Choice("suits", "generate and chat", _openvino_is_faster(flags) or others)


def suits_openvino(flags: frozenset[str]) -> Choice:
    """Return the recommendation for OpenVINO on a CPU with these ``flags``."""
    if _openvino_is_faster(flags):
        reason = "a lone chat runs faster with llama_cpp, from a GGUF file"
        return Choice("suits", "classify, score and batches", reason)
    reason = "this processor has no instructions for bfloat16 or int8: mlx_cpu can do the same"
    return Choice("suits", "classify and score", reason)


def _openvino_is_faster(flags: frozenset[str]) -> str:
    """Return what OpenVINO does faster on a processor; empty without instructions for it."""
    if names := fast_bfloat16_instructions(flags):
        return f"openvino classifies faster in bfloat16, with {' and '.join(names)}"
    if names := int8_instructions(flags):
        return f"openvino with dtype='int8' classifies faster, with {' and '.join(names)}"
    return ""


def parallel_slots(config: LoadConfig, on_gpu: bool) -> Chosen[int]:
    """Return the number of requests to decode concurrently."""
    if config.parallel_slots:
        return Chosen("parallel_slots", config.parallel_slots, ASKED)
    slots = 32 if on_gpu else 8
    return Chosen("parallel_slots", slots, "rows that decode together share each read of a weight")


def pass_threads(config: LoadConfig, most: int) -> Chosen[int]:
    """Return the number of threads of one pass, at most ``most`` if the user chooses it.

    Raises `core.InvalidOptionError` for an invalid option value.
    """
    return asked_integer(config, "n_threads", 1, most) or Chosen(
        "n_threads", usable_cores(), "one per core that this process may use"
    )


def prefix_cache(config: LoadConfig, free: int | None) -> Chosen[int]:
    """Return the size of the prefix cache in bytes of keys and values; 0 for none.

    ``free``: the device's free memory in bytes after the load, None if unknown. Raises
    `core.InvalidOptionError` for an invalid option value.
    """
    requested = asked_integer(config, "prefix_cache", 0)
    if requested is not None:
        return requested
    purpose = "bytes for prompts that begin like recent ones"
    if free is None:
        return Chosen("prefix_cache", _UNKNOWN_PREFIXES, f"{purpose}; free memory is not known")
    share = free // _PREFIX_SHARE
    if share > _MOST_PREFIXES:
        return Chosen("prefix_cache", _MOST_PREFIXES, f"{purpose}, as many as are likely to help")
    return Chosen("prefix_cache", share, f"{purpose}: a sixteenth of the {free / 1e9:.1f} GB free")


def template_name(config: LoadConfig) -> str | None:
    """Return the requested chat template's name; None without one.

    Raises `InvalidOptionError` for an option's wrong type.
    """
    requested = config.options.get("chat_template")
    return None if requested is None else validate.text("chat_template", requested)
