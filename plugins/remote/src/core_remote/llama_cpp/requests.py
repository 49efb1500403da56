"""Bodies of requests to ``/completion`` of llama.cpp's server.

The server's defaults differ, so every option is sent, and the samplers are in the contract's order:
repeat penalty, typical_p, top_p, min_p, top_k, temperature.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from secrets import randbelow
from typing import Any

from core.options import GenerateConfig

COMPLETION = "/completion"
HONOURED = frozenset({"temperature", "top_k", "typical_p", "top_p", "min_p", "repeat_penalty"})
"""The sampling options that `completion` sends; models refuse all others by name."""
SEEDS = 2**32 - 1
"""The number of seeds: the server treats the last 32-bit value as no seed."""

_ORDER = ["penalties", "typ_p", "top_p", "min_p", "top_k", "temperature"]
_COLDEST = 1e-6  # is greedy within the rounding of float32, in which the server divides by it
_MOST = 2**31 - 1  # a field is an int32
# Servers of 2026 parse every answer as a chat's, from the start with each token, and fail at bytes
# that are not UTF-8. This parser (common/peg-parser.cpp) is empty, so it accepts anything.
_NO_PARSER = '{"parsers": [{"type": "epsilon"}], "rules": {}, "root": 0}'
_FIELDS = ["tokens", "stop", "stop_type", "tokens_predicted", "completion_probabilities", "timings"]
_NEUTRAL: dict[str, Any] = {
    "samplers": _ORDER,
    "mirostat": 0,
    "dynatemp_range": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "ignore_eos": False,
    "logit_bias": [],
    "min_keep": 0,
    "cache_prompt": True,
    "return_tokens": True,
    "post_sampling_probs": False,
    "chat_parser": _NO_PARSER,
    "response_fields": _FIELDS,
}


def completion(
    prompt: Sequence[int],
    config: GenerateConfig,
    *,
    tokens: int,
    seed: int,
    probabilities: int,
    context: int,
    stream: bool = False,
) -> dict[str, Any]:
    """Return the body that continues token ids by at most ``tokens`` tokens.

    ``probabilities``: number of likeliest tokens to report. ``stop`` and ``stop_tokens`` are not
    sent: this side looks for them.
    """
    greedy = config.temperature < _COLDEST
    return _NEUTRAL | {
        "prompt": list(prompt),
        "n_predict": tokens,
        "stream": stream,
        "n_probs": probabilities,
        "seed": seed % SEEDS,
        "temperature": 0.0 if greedy else config.temperature,
        "top_k": 0 if greedy else min(config.top_k, _MOST),
        "top_p": 1.0 if greedy else config.top_p,
        "min_p": 0.0 if greedy else config.min_p,
        "typical_p": 1.0 if greedy else config.typical_p,
        "repeat_penalty": config.repeat_penalty,
        "repeat_last_n": context,
    }


def forced(prompt: Sequence[int], path: Sequence[int], *, probabilities: int = 1) -> dict[str, Any]:
    """Return the body that forces the next tokens, and requests their log-probabilities.

    A grammar allows no others (``<[id]>`` in grammars/README.md); it does not change the
    log-probabilities, which are taken before sampling.
    """
    plain = GenerateConfig()
    body = completion(
        prompt, plain, tokens=len(path), seed=0, probabilities=probabilities, context=0
    )
    rule = " ".join(f"<[{token}]>" for token in path)
    return body | {"grammar": f"root ::= {rule}"}


def own_seed(config: GenerateConfig) -> int:
    """Return the requested seed, or a random one; for a greedy request always the same."""
    if config.seed is not None:
        return config.seed
    return 0 if config.temperature < _COLDEST else randbelow(SEEDS)


def seed_of(seed: int, step: int) -> int:
    """Return the seed that continues a generation in another request after ``step`` tokens."""
    if step == 0:
        return seed % SEEDS
    digest = blake2b(f"{seed}:{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % SEEDS
