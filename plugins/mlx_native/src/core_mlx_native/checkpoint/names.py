"""Tensor names as checkpoints spell them, and the plain ones that this plugin uses."""

from __future__ import annotations

# What a multimodal or older checkpoint holds beside the text model.
_PREFIX = "language_model."
_ALIEN = ("vision_tower.", "multi_modal_projector.", "audio_tower.")
_IGNORED_SUFFIX = "rotary_emb.inv_freq"


def plain_name(name: str) -> str | None:
    """A tensor's name in the text model; None for what does not belong to it."""
    name = name.removeprefix(_PREFIX).replace(f"model.{_PREFIX}", "model.", 1)
    if name.removeprefix("model.").startswith(_ALIEN) or name.endswith(_IGNORED_SUFFIX):
        return None
    return name
