"""Opening of a model of a server with OpenAI's API, by a probe of its features.

Each request of the probe has a few tokens. Seeds and log-probabilities count as offered if both
texts and chats have them; a server may silently ignore unknown fields, so every feature is
verified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from core import validate
from core.errors import CoreError
from core.kit.base import never_stop
from core.options import GenerateConfig, LoadConfig
from core.protocols import Capability
from core.types import Choice, Message, ModelInfo
from core_remote import failures
from core_remote.connection import Connection
from core_remote.listing import listed_models, size_of
from core_remote.model import ModelFacts
from core_remote.openai.events import ID_BITS
from core_remote.openai.model import OpenAIModel
from core_remote.openai.requests import HONOURED, Request, RequestVariant
from core_remote.openai.streams import OpenAIWire
from core_remote.stream import RemoteStream

_PROMPT = "Once upon a time there was a"
_TURNS = (Message("user", "Hello"),)
_FEW, _DRAWN = 2, 12  # tokens
_HOT = 2.0  # the maximum that servers accept: even a confident model must vary
_AT_ONCE = 4  # requests
_SEEDS = (1, 1, 2, 3)
_CONTEXT = 4096  # tokens, if it is not reported
_TOLERANCE = 0.5  # as for bfloat16 elsewhere, because no API reports the dtype


@dataclass(frozen=True, slots=True)
class _Shown:
    """The result of probing one route, texts or chats."""

    logprobs: bool
    seed: bool
    counts: bool


def open_model(
    backend: str, connection: Connection, choices: tuple[Choice, ...], config: LoadConfig
) -> OpenAIModel:
    """Return the model. Raises `ModelNotFoundError`, `core.BackendProcessError`."""
    listed = listed_models(connection)
    wanted = connection.address.model
    if wanted and listed and wanted not in [str(model.get("id")) for model in listed]:
        raise failures.missing_model(connection.address, [str(model.get("id")) for model in listed])
    info = _info(listed, wanted, config)
    variant = replace(_variant(connection, listed, wanted), context_length=info.context_length)
    routes = {
        Capability.GENERATE: _seen(connection, variant, partial(variant.completion, _PROMPT)),
        Capability.CHAT: _seen(connection, variant, partial(variant.chat, _TURNS)),
    }
    shown = {name: seen for name, seen in routes.items() if seen is not None}
    variant = replace(variant, counts_first=not all(seen.counts for seen in shown.values()))
    if not shown:
        raise failures.nonsense(connection.address, "neither texts nor chats can be streamed")
    offered = {*shown, Capability.MODEL_PROBE, Capability.DECLARING, Capability.EXPLAINING}
    if Capability.GENERATE in shown:
        offered.add(Capability.BATCH_GENERATE)
    if all(seen.logprobs for seen in shown.values()):
        offered.add(Capability.LOGPROBS)
    if all(seen.seed for seen in shown.values()):
        offered.add(Capability.SEED)
    own = (*choices, Choice("wire", "openai", "the only supported API of the server"))
    facts = ModelFacts(info, frozenset(offered), HONOURED, own)
    return OpenAIModel(backend, connection, facts, variant)


def usual_connections(connection: Connection) -> int:
    """Return the default number of concurrent requests.

    llama-cpp-python, recognised by a route, interrupts the last request for a new one;
    mlx_lm.server, like all based on Python's server, resets connections beyond five.
    """
    body = {"input": "a"}
    try:
        status, _ = connection.get("/extras/tokenize/count", never_stop, body)
    except CoreError:
        return _AT_ONCE
    return 1 if status == 200 else _AT_ONCE


def _variant(connection: Connection, listed: list[dict[str, Any]], wanted: str) -> RequestVariant:
    """Return the first variant of requests that the server accepts.

    Variants: with additional fields or without, with a model's name or without.

    Raises `ModelNotFoundError` or `core.BackendProcessError`, with its message, if it accepts none.
    """
    name = wanted or (str(listed[0].get("id")) if listed else "")
    tried = [
        RequestVariant(wanted),
        RequestVariant(name),
        RequestVariant(wanted, plain=True),
        RequestVariant(name, plain=True),
    ]
    for variant in dict.fromkeys(tried):
        for path, body in (
            variant.completion(_PROMPT, GenerateConfig(max_tokens=1)),
            variant.chat(_TURNS, GenerateConfig(max_tokens=1)),
        ):
            short_body = {
                key: it for key, it in body.items() if key not in ("stream", "stream_options")
            }
            status, answer = connection.get(path, never_stop, short_body)
            if status == 200:
                return variant
    raise failures.unanswered(connection.address, status, answer)


def _seen(
    connection: Connection, variant: RequestVariant, ask: Callable[[GenerateConfig], Request]
) -> _Shown | None:
    """Return the result of probing one route; None if it returns no text."""

    def texts(config: GenerateConfig) -> RemoteStream:
        wire = OpenAIWire(connection, variant, config, lambda: ask(config))
        return RemoteStream(wire, config, lambda metrics: None)

    stream = texts(GenerateConfig(max_tokens=_FEW))
    try:
        list(stream)
    except CoreError:
        return None
    return _Shown(_has_logprobs(texts), _has_seeds(texts), stream.metrics.prompt_tokens > 0)


def _has_logprobs(texts: Callable[[GenerateConfig], RemoteStream]) -> bool:
    try:
        tokens = list(texts(GenerateConfig(max_tokens=_FEW, return_logprobs=True)))
    except CoreError:
        return False
    return bool(tokens) and all(token.logprob is not None for token in tokens)


def _has_seeds(texts: Callable[[GenerateConfig], RemoteStream]) -> bool:
    """Return whether a seed draws the same twice, and another seed something else."""
    plain = GenerateConfig(max_tokens=_DRAWN, temperature=_HOT)
    try:
        one, again, *others = (texts(replace(plain, seed=seed)).text() for seed in _SEEDS)
    except CoreError:
        return False
    return one == again and any(one != other for other in others)


def _info(listed: list[dict[str, Any]], wanted: str, config: LoadConfig) -> ModelInfo:
    """Return the facts; unreported values are the smallest possible ones.

    Ids are `events.id_of`'s.
    """
    known = next((model for model in listed if not wanted or model.get("id") == wanted), {})
    meta = known.get("meta") if isinstance(known.get("meta"), dict) else {}
    assert isinstance(meta, dict)
    listed_sizes = (known.get("max_model_len"), meta.get("n_ctx"), meta.get("n_ctx_train"))
    given = config.options.get("context_length", size_of(*listed_sizes, unknown=_CONTEXT))
    name = str(known.get("id") or wanted or "unknown").rstrip("/").rpartition("/")[2]
    return ModelInfo(
        architecture=name.removesuffix(".gguf") or "unknown",
        vocab_size=2**ID_BITS,
        num_layers=1,
        hidden_size=size_of(meta.get("n_embd")),
        quant_bits=0,
        quant_group=0,
        context_length=validate.integer("context_length", given, 1),
        logit_tolerance=_TOLERANCE,
    )
