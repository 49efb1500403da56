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


def config_of(requested: Mapping[str, Any], most: int) -> GenerateConfig:
    """Return the options of a request; ``most`` is the default number of tokens.

    Greedy unless ``do_sample`` or a temperature requests sampling, as in lm-eval. Options unknown
    to core are dropped and logged.
    """
    unknown = sorted(requested.keys() - _UNUSED)
    if unknown:
        _log.warning("ignoring generation options that core does not support: %s", unknown)
    options: dict[str, Any] = {name: requested[name] for name in _SAME if name in requested}
    if requested.get("do_sample") is False:
        options = {}
    elif requested.get("do_sample") and "temperature" not in requested:
        options["temperature"] = 1.0
    if "repetition_penalty" in requested:
        options["repeat_penalty"] = requested["repetition_penalty"]
    length = next((requested[name] for name in _LENGTHS if name in requested), most)
    until = requested.get("until") or ()
    stop = (until,) if isinstance(until, str) else tuple(until)
    return GenerateConfig(max_tokens=int(length), stop=tuple(filter(None, stop)), **options)
