"""Shows how labels are joined to prompts, with or without a space, and compares both ways.

The wrong way costs nearly all of the label mass, for any prompt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from core.errors import CoreError
from core.kit.labels import label_lead, label_sentences, label_texts, unspaced

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core.protocols import TextModel

_MUCH = 10.0  # times the label mass
_LEAST = 1e-300  # a mass of zero has no logarithm
_SHOWN = 24  # characters of a prompt's end


def joined(prompt: str, config: GenerateConfig) -> str:
    """Return a line with the first label after this prompt, and how it is joined."""
    [text] = label_texts(prompt, config.labels[:1], config.label_prefix)
    end = prompt[-_SHOWN:]
    cut = "" if end == prompt else "…"
    return f"labels are joined {_way(prompt, config)}: {cut + end + text!r}"


def compared(config: GenerateConfig) -> str:
    """Return a line with the first label's sentence, with which a model compares the prompt."""
    [sentence] = label_sentences(config.labels[:1], config.label_sentence)
    return f"compared with the sentence of each label: {sentence!r}"


def _way(prompt: str, config: GenerateConfig) -> str:
    lead = label_lead(prompt, config.label_prefix)
    if config.labels[0][:1].isspace() and not lead.strip():
        return "with their own leading white space"
    if lead:
        return "with a space" if lead == " " else f"with {lead!r}"
    if prompt[-1:].isspace():
        return "without a space, because the prompt ends in white space"
    if config.label_prefix:
        return f"without a space, because the prompt ends in {unspaced(prompt)}"
    return "without a space, because the label prefix is empty"


def advice(model: TextModel, prompts: Sequence[str], config: GenerateConfig) -> str | None:
    """Return advice to join the labels the other way, if that makes them likelier.

    None without another way, or if it gives less than ten times the mass.
    """
    now = [label_texts(prompt, config.labels, config.label_prefix) for prompt in prompts]
    comparable = [
        prompt
        for prompt, texts in zip(prompts, now, strict=True)
        if texts == now[0] and not prompt[-1:].isspace()
    ]
    if not comparable or config.label_prefix.strip():  # the prefix is more than white space
        return None
    spaced = now[0][0][:1].isspace()
    other = [text.lstrip() if spaced else f" {text}" for text in now[0]]
    try:
        masses = [_masses(model, comparable, config, texts) for texts in (now[0], other)]
    except CoreError:  # for example, labels that are equal without their space
        return None
    gains = [math.log(after / before) for before, after in zip(*masses, strict=True)]
    if not gains or (factor := math.exp(fmean(gains))) < _MUCH:
        return None
    way = "without" if spaced else "with"
    return f"Joined {way} a space, they are {factor:.2g} times as likely: {_change(spaced, config)}"


def _masses(
    model: TextModel, prompts: Sequence[str], config: GenerateConfig, texts: Sequence[str]
) -> list[float]:
    """Return the label mass of each prompt with these texts after it."""
    variant = replace(config, labels=tuple(texts), label_prefix="", labels_only=False)
    results = model.classify(prompts, variant)
    return [max(result.raise_for_error().label_mass or 0.0, _LEAST) for result in results]


def _change(spaced: bool, config: GenerateConfig) -> str:
    if not spaced and config.label_prefix:
        return "end the prompt with one."
    if spaced and config.labels[0][:1].isspace():
        return "remove the space at the start of the labels."
    prefix = "" if spaced else " "
    return f"set the label prefix to {prefix!r} (--label-prefix, or in the task file)."
