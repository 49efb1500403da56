"""Tensor names in checkpoints, and the plain names of the text model."""

from __future__ import annotations

from collections.abc import Mapping

_PREFIX = "language_model."

HARMLESS: Mapping[str, str] = {
    "vision_tower.": "the image encoder, which reads no text",
    "multi_modal_projector.": "projects the image encoder's output into the model",
    "audio_tower.": "the audio encoder, which reads no text",
    "rotary_emb.inv_freq": "computed from config.json",
    "rotary_emb.cos_cached": "computed from config.json",
    "rotary_emb.sin_cached": "computed from config.json",
}
"""The tensors that are skipped, by prefix or suffix of their names, with the reason."""

STRANGERS: Mapping[str, str] = {
    "score.": "a classification head",
    "classifier.": "a classification head",
    "v_head.": "a value head of reinforcement learning",
    "lora_": "an adapter's",
    ".qweight": "packed by GPTQ or AWQ",
    ".qzeros": "packed by GPTQ or AWQ",
    ".g_idx": "packed by GPTQ",
    ".absmax": "packed by bitsandbytes",
    ".quant_": "packed by bitsandbytes",
    ".weight_packed": "packed by compressed-tensors",
    "_scale": "packed as FP8, or for a cache in FP8",
    "mtp.": "layers that draft tokens",
    "experts.": "a mixture of experts",
}
"""The unsupported kinds of tensors, by a part of their names; they are refused."""


def plain_name(name: str) -> str | None:
    """Return a tensor's name in the text model; None if it does not belong to it."""
    name = name.removeprefix(_PREFIX).replace(f"model.{_PREFIX}", "model.", 1)
    inside = name.removeprefix("model.")
    if any(inside.startswith(part) or name.endswith(part) for part in HARMLESS):
        return None
    return name


def stranger(name: str) -> str:
    """Return the kind of an unsupported tensor, in brackets; empty if unknown."""
    known = (f" ({what})" for part, what in STRANGERS.items() if part in name)
    return next(known, "")
