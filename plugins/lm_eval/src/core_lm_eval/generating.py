"""lm-eval's ``generation_kwargs`` as options of core."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from core.options import GenerateConfig

_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_SAME = ("temperature", "top_k", "top_p", "min_p", "seed")
_UNUSED = {"do_sample", "until", "max_length", *_LENGTHS, *_SAME, "repetition_penalty"}
_log = logging.getLogger(__name__)


def config_of(asked: Mapping[str, Any], most: int) -> GenerateConfig:
    """Return the options of a request; ``most`` is the default number of tokens.

    Greedy unless ``do_sample`` or a temperature requests sampling, as in lm-eval. Options unknown
    to core are dropped and logged.
    """
    unknown = sorted(asked.keys() - _UNUSED)
    if unknown:
        _log.warning("ignoring generation options that core does not support: %s", unknown)
    options: dict[str, Any] = {name: asked[name] for name in _SAME if name in asked}
    if asked.get("do_sample") is False:
        options = {}
    elif asked.get("do_sample") and "temperature" not in asked:
        options["temperature"] = 1.0
    if "repetition_penalty" in asked:
        options["repeat_penalty"] = asked["repetition_penalty"]
    length = next((asked[name] for name in _LENGTHS if name in asked), most)
    until = asked.get("until") or ()
    stop = (until,) if isinstance(until, str) else tuple(until)
    return GenerateConfig(max_tokens=int(length), stop=tuple(filter(None, stop)), **options)
