"""Opening of a model of llama.cpp's server: recognised by ``/props``, then probed.

Each request of the probe has a token or two, except for one: all tokens of the vocabulary, with
their bytes, about a hundred bytes each. An older server without these features, or a llama.cpp
router, is used through OpenAI's API.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import Any

import msgspec

from core.errors import CoreError, RequestError
from core.kit.base import never_stop
from core.options import GenerateConfig
from core.protocols import Capability
from core.types import Choice, Message, ModelInfo
from core_remote import failures
from core_remote.capabilities import LLAMA_CPP
from core_remote.connection import Connection
from core_remote.failures import ServerBusyError, ServerError
from core_remote.listing import listed_models, size_of
from core_remote.llama_cpp import vocabulary
from core_remote.llama_cpp.logprobs import LogprobReader
from core_remote.llama_cpp.methods import METHODS
from core_remote.llama_cpp.model import LlamaServerModel
from core_remote.llama_cpp.requests import HONOURED, completion
from core_remote.llama_cpp.server import LlamaServer
from core_remote.llama_cpp.tokenizer import Tokenizer
from core_remote.llama_cpp.vocabulary import ServerVocabulary
from core_remote.model import ModelFacts

_FLOATS, _ROUNDED = 0.5, 2.0  # as core's llama_cpp states it where it does not know the device
_BITS = re.compile(r"^I?T?Q(\d)", re.IGNORECASE)
_BLOCK = 32  # weights with one scale, in most of ggml's types
_CHATML = "<|im_start|>"
_TURNS = (Message("user", "Hello"),)
_DRAWN = 12  # tokens
_SEEDS = (1, 1, 2, 3)


class _Defaults(msgspec.Struct):
    n_ctx: int


class Properties(msgspec.Struct):
    """The answer to ``GET /props``; ``n_ctx`` is the context of one slot, in tokens."""

    default_generation_settings: _Defaults
    total_slots: int
    model_path: str = ""
    model_alias: str = ""
    model_ftype: str = ""
    bos_token: str = ""
    build_info: str = ""


def describe(connection: Connection) -> Properties | None:
    """Return the server's properties; None if it is not llama.cpp's.

    Raises `core.BackendProcessError` for impossible sizes.
    """
    status, body = connection.get("/props", never_stop)
    if status != 200:
        return None
    try:
        properties = msgspec.json.decode(body, type=Properties)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    context = properties.default_generation_settings.n_ctx
    if not (2 <= context < 2**31 and 0 <= properties.total_slots < 2**16):
        sizes = f"n_ctx {context} and total_slots {properties.total_slots} in /props"
        raise failures.nonsense(connection.address, sizes)
    return properties


def open_model(
    backend: str, connection: Connection, properties: Properties, choices: tuple[Choice, ...]
) -> LlamaServerModel | None:
    """Return the model; None if the server lacks a feature that this API needs.

    Raises `ModelNotFoundError`, `core.BackendProcessError`.
    """
    listed = listed_models(connection)
    names = [properties.model_alias, *(str(model.get("id")) for model in listed)]
    wanted = connection.address.model
    if wanted and wanted not in names:
        raise failures.missing_model(connection.address, [*filter(None, dict.fromkeys(names))])

    server, slots = LlamaServer(connection), max(1, properties.total_slots)
    try:
        known = connection.run(vocabulary.read(server), never_stop)
        connection.run(_try(server, known), never_stop)
    except ServerBusyError:
        raise
    except (RequestError, ServerError):
        return None
    limit = (
        properties.default_generation_settings.n_ctx - 1
    )  # the server refuses a prompt that fills it
    tokenizer = Tokenizer(server, known, limit, properties.bos_token if known.lead.bos else "")

    offered = set(LLAMA_CPP)
    if slots > 1:
        offered.add(Capability.PARALLEL)
    if _renders(connection, tokenizer):
        offered.add(Capability.CHAT)
    if _has_seeds(connection, server, known, limit):
        offered.add(Capability.SEED)
    own = (
        *choices,
        Choice("wire", "llama.cpp", f"the server is llama.cpp {properties.build_info}".strip()),
        Choice("parallel_slots", str(slots), "the server's number of slots"),
    )
    facts = ModelFacts(_info(properties, listed, known, limit), frozenset(offered), HONOURED, own)
    kind = _class_for(frozenset(offered & METHODS.keys()))
    return kind(backend, connection, facts, tokenizer, slots)


async def _try(server: LlamaServer, known: ServerVocabulary) -> None:
    """Check that the server generates exactly the tokens that it is forced to."""
    prompt = [*known.lead.bos, known.letter]
    await LogprobReader(server, known).along(prompt, [known.letter, known.letter])


def _renders(connection: Connection, tokenizer: Tokenizer) -> bool:
    """Return whether the model has a chat template with markers that are special tokens.

    For a model without one, the server uses ChatML's, which other models read as plain text.
    """

    async def rendered() -> bool:
        prompt = await tokenizer.render_chat(_TURNS)
        if _CHATML not in prompt or _CHATML in tokenizer.vocabulary.special:
            return bool(prompt)
        return len(await tokenizer.encode_alone(_CHATML)) == 1

    try:
        return connection.run(rendered(), never_stop)
    except CoreError:
        return False


def _has_seeds(
    connection: Connection, server: LlamaServer, known: ServerVocabulary, limit: int
) -> bool:
    """Return whether a seed draws the same twice, and another seed something else."""
    prompt, config = [*known.lead.bos, known.letter], GenerateConfig(temperature=1.0)

    async def drawn() -> list[list[int]]:
        drawn = []
        for seed in _SEEDS:
            body = completion(
                prompt, config, tokens=_DRAWN, seed=seed, probabilities=0, context=limit + 1
            )
            drawn.append((await server.complete(body)).tokens)
        return drawn

    try:
        one, again, *others = connection.run(drawn(), never_stop)
    except CoreError:
        return False
    return one == again and any(one != other for other in others)


def _info(
    properties: Properties, listed: list[dict[str, Any]], known: ServerVocabulary, limit: int
) -> ModelInfo:
    """Return the facts; unreported values are the smallest possible ones."""
    meta = listed[0].get("meta") if listed else None
    meta = meta if isinstance(meta, dict) else {}
    bits = _BITS.match(properties.model_ftype)
    path = properties.model_path.replace("\\", "/").rpartition("/")[2]
    return ModelInfo(
        architecture=path.removesuffix(".gguf") or properties.model_alias or "unknown",
        vocab_size=known.size,
        num_layers=1,
        hidden_size=size_of(meta.get("n_embd")),
        quant_bits=int(bits[1]) if bits else 0,
        quant_group=_BLOCK if bits else 0,
        context_length=limit,
        logit_tolerance=_ROUNDED if bits else _FLOATS,
    )


@cache
def _class_for(protocols: Collection[Capability]) -> type[LlamaServerModel]:
    bases = [METHODS[capability] for capability in sorted(protocols)]
    return type("RemoteModel", (*bases,), {"__module__": __name__})
