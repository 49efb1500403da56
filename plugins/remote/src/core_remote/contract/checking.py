"""Checks of a server's answers against the requests.

The values are untrusted: `core_wires.plain` checks their types on reading, and this module that
they can be an answer to the request. Each function returns a description of the fault, or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any

from core.options import GenerateConfig
from core.types import (
    AttentionSnapshot,
    BatchResult,
    ClassifyResult,
    GenerateMetrics,
    HiddenResult,
    ModelInfo,
    Score,
    Token,
    TokenSequence,
)
from core_remote.listing import LARGEST, SLACK

_IDS = 2**31  # an added token may have an id beyond the vocabulary's size

Wrong = str | None


def of_info(info: ModelInfo) -> Wrong:
    """Check the facts of a model."""
    for name, low in (("vocab_size", 1), ("context_length", 1), ("num_layers", 0)):
        if not low <= getattr(info, name) <= LARGEST:
            return f"a {name} of {_short(getattr(info, name))}"
    for name in ("hidden_size", "quant_bits", "quant_group"):
        if not 0 <= getattr(info, name) <= LARGEST:
            return f"a {name} of {_short(getattr(info, name))}"
    tolerance = info.logit_tolerance
    return None if 0 <= tolerance < math.inf else f"a logit_tolerance of {tolerance}"


def of_metrics(metrics: GenerateMetrics) -> Wrong:
    """Check the metrics of a call."""
    for field in fields(metrics):
        value = getattr(metrics, field.name)
        if not 0 <= value <= LARGEST:
            return f"{field.name} of {_short(value)}"
    return None


def of_ids(ids: Sequence[int], info: ModelInfo) -> Wrong:
    """Check the ids that a text was encoded to."""
    limit = max(_IDS, info.vocab_size)
    odd = next((id for id in ids if not 0 <= id < limit), None)
    return None if odd is None else f"the token id {_short(odd)}"


def of_token(token: Token, info: ModelInfo) -> Wrong:
    """Check a token that was generated."""
    if not 0 <= token.id < info.vocab_size:
        return f"the token id {_short(token.id)}, of a vocabulary of {info.vocab_size}"
    if token.logprob is None or _is_logprob(token.logprob):
        return None
    return f"a token with the log-probability {token.logprob}"


def of_tokens(tokens: Sequence[Token], config: GenerateConfig, info: ModelInfo) -> Wrong:
    """Check all tokens of an answer."""
    if len(tokens) > config.max_tokens:
        return too_many(config)
    return next(filter(None, (of_token(token, info) for token in tokens)), None)


def too_many(config: GenerateConfig) -> str:
    """Return the words for more tokens than requested."""
    return f"more tokens than max_tokens={config.max_tokens}"


def of_attention(snapshot: AttentionSnapshot) -> Wrong:
    """Check that the keys have their declared sizes."""
    size = snapshot.seq_len * snapshot.head_dim
    heads = [len(layer) for layer in snapshot.keys]
    if heads != [snapshot.num_heads] * snapshot.num_layers or size < 1:
        return f"keys of {len(heads)} layers, declared as {_short(snapshot.num_layers)}"
    if any(len(head) != size for head in chain.from_iterable(snapshot.keys)):
        return "keys of another length than seq_len * head_dim"
    return None


def of_row(
    row: Any, place: int, config: GenerateConfig, info: ModelInfo, arguments: Mapping[str, Any]
) -> Wrong:
    """Check the result of the row at this place of a request with these arguments.

    A failed row may have the tokens until then, and nothing else. Of a type that is not listed
    below, the types of its fields are all that is checked.
    """
    if row.error is not None and not isinstance(row, BatchResult | TokenSequence):
        return None
    check = _KINDS.get(type(row))
    return None if check is None else check(row, place, config, info, arguments)


# --------------------------------------------------------------------------- kinds of rows


def _classification(
    row: ClassifyResult,
    place: int,
    config: GenerateConfig,
    info: ModelInfo,
    arguments: Mapping[str, Any],
) -> Wrong:
    if row.token is None and not (_wants_label_alone(config) or _of_sentences(row, config)):
        return "no token"
    if row.token is not None and (wrong := of_token(row.token, info)):
        return wrong
    if config.return_logits and (row.logits is None or len(row.logits) != info.vocab_size):
        return f"other than {info.vocab_size} logits"
    if row.logits is not None and math.isnan(sum(row.logits)):
        return "logits that are not numbers"
    return _labels(row, config)


def _wants_label_alone(config: GenerateConfig) -> bool:
    """Return whether ``labels_only`` applies: options that need more turn it off."""
    more = config.return_logits or config.return_logprobs
    return bool(config.labels) and config.labels_only and not more


def _of_sentences(row: ClassifyResult, config: GenerateConfig) -> bool:
    """Return whether a row may be of a model of label sentences, which has no next token."""
    if not config.labels or config.return_logits or config.return_logprobs:
        return False
    return row.logprobs is None and row.label_mass is None


def _labels(row: ClassifyResult, config: GenerateConfig) -> Wrong:
    probabilities, labels = row.probabilities, config.labels
    if not labels:
        unasked = row.label is not None or probabilities or row.logprobs
        return "labels that were not requested" if unasked else None
    if probabilities is None and _wants_label_alone(config):
        known = row.label in labels
        return None if known else f"the label {_short(row.label)}, which was not requested"
    if probabilities is None or probabilities.keys() != set(labels):
        return "probabilities of other labels than requested"
    values = sorted(probabilities.values(), reverse=True)
    if not all(0 <= value <= 1 + SLACK for value in values) or abs(sum(values) - 1) > SLACK:
        return f"probabilities that do not sum to 1: {_short(values)}"
    if row.label is None or probabilities.get(row.label) != values[0]:
        return f"the label {_short(row.label)}, which is not the most probable one"
    if row.label_mass is not None and not 0 <= row.label_mass <= 1 + SLACK:
        return f"a label_mass of {row.label_mass}"
    if row.logprobs is not None and not _fit(row.logprobs, probabilities, row.label_mass):
        return (
            f"log-probabilities {_short(row.logprobs)}, which do not fit the probabilities or the "
            "label_mass"
        )
    margin = values[0] - values[1] if len(values) > 1 else 1.0
    if row.margin is not None and not abs(row.margin - margin) <= SLACK:
        return f"a margin of {row.margin}"
    return None


def _fit(
    logprobs: Mapping[str, float], probabilities: Mapping[str, float], mass: float | None
) -> bool:
    """Return whether log-probabilities, normalised, are the probabilities, and fit the mass.

    One label may begin with another, so that the mass of all is less than their sum. Where each is
    impossible, nothing is known of the probabilities.
    """
    if logprobs.keys() != probabilities.keys() or not all(lp <= SLACK for lp in logprobs.values()):
        return False
    top = max(logprobs.values())
    if top == -math.inf:
        return mass is None or abs(mass) <= SLACK
    total = math.fsum(math.exp(logprob - top) for logprob in logprobs.values())
    shares = {name: math.exp(logprob - top) / total for name, logprob in logprobs.items()}
    if any(abs(shares[name] - probabilities[name]) > SLACK for name in shares):
        return False
    least = math.exp(top)
    return mass is None or least - SLACK <= mass <= least * total + SLACK


def _generation(
    row: BatchResult,
    place: int,
    config: GenerateConfig,
    info: ModelInfo,
    arguments: Mapping[str, Any],
) -> Wrong:
    return of_tokens(row.tokens, config, info)


def _score(
    row: Score, place: int, config: GenerateConfig, info: ModelInfo, arguments: Mapping[str, Any]
) -> Wrong:
    values, continuation = row.token_logprobs, arguments["continuations"][place]
    if not values or (not isinstance(continuation, str) and len(values) != len(continuation)):
        return f"{len(values)} log-probabilities for a continuation of another length"
    total = sum(values)
    close = row.logprob == total or abs(row.logprob - total) <= SLACK * max(1.0, abs(total))
    if not all(value <= SLACK for value in values) or not close:
        return f"a log-probability of {row.logprob} for a sum of {total}"
    return None


def _sequence(
    row: TokenSequence,
    place: int,
    config: GenerateConfig,
    info: ModelInfo,
    arguments: Mapping[str, Any],
) -> Wrong:
    prompt = arguments["prompts"][place // arguments["num_samples"]]
    new = len(row.ids) - len(prompt)
    flags = (False,) * len(prompt) + (True,) * new
    if list(row.ids[: len(prompt)]) != list(prompt) or row.generated != flags:
        return "a sequence that does not continue its prompt"
    if len(row.logprobs) not in (0, new):
        return f"{len(row.logprobs)} log-probabilities of {new} tokens"
    values = row.logprobs or (None,) * new
    ids = row.ids[len(prompt) :]
    tokens = [Token(id, "", value) for id, value in zip(ids, values, strict=True)]
    return of_tokens(tokens, config, info)


def _states(
    row: HiddenResult,
    place: int,
    config: GenerateConfig,
    info: ModelInfo,
    arguments: Mapping[str, Any],
) -> Wrong:
    if list(row.layers) != list(arguments["layers"]) or row.states is None:
        return f"hidden states of the layers {_short(row.layers)}"
    if len(row.states) != len(row.layers) * info.hidden_size:
        return f"{len(row.states)} values of hidden states"
    return "hidden states that are not numbers" if math.isnan(sum(row.states)) else None


_KINDS: Mapping[type, Callable[[Any, int, GenerateConfig, ModelInfo, Mapping[str, Any]], Wrong]] = {
    ClassifyResult: _classification,
    BatchResult: _generation,
    Score: _score,
    TokenSequence: _sequence,
    HiddenResult: _states,
}


def _is_logprob(value: float) -> bool:
    return -math.inf < value <= SLACK


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer beyond Python's print limit
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:60]}..."
