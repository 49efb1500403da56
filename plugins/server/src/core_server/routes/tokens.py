"""Tokenising routes: the ids of a text, the text of ids, and the prompt of a chat.

``/tokenize`` and ``/detokenize`` are vLLM's (``vllm/entrypoints/serve/tokenize/protocol.py``). Only
its fields that determine the text are supported; the ids are always those of a prompt, a leading
BOS included.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from starlette.responses import Response

from core_server.bounds import bytes_of_text, refuse_beyond, token_ids
from core_server.replies import reply
from core_server.request_body import RequestBody
from core_server.served import Served
from core_server.server import Server
from core_wires import generation
from core_wires.errors import OPENAI
from core_wires.values import MAX_VALUES, Value, bounded

_SPECIAL = "add_special_tokens"  # always done here
_CHAT = ("messages", *generation.TEMPLATE)


async def tokenize(server: Server, body: RequestBody) -> Response:
    """Return the ids of a prompt, or of a chat through the model's template."""
    request = await body.read(partial(_request, {"prompt", "return_token_strs", _SPECIAL, *_CHAT}))
    served = await server.model_or_first(request.optional("model", Value.text, ""))
    return await body.run(lambda: reply(_tokenized(served, request, body)))


def _request(fields: Collection[str], body: object) -> Value:
    """Return a request with no fields but these and ``model``. Raises `WireError`."""
    request = bounded(body, OPENAI)
    request.only({"model", *fields})
    special = request.get(_SPECIAL)
    if special is not None and not special.flag():
        raise special.wrong("Must be true: ids include special tokens.", "unsupported_value")
    return request


def _tokenized(served: Served, request: Value, body: RequestBody) -> dict[str, object]:
    model, shown = served.tokenizing(), request.optional("return_token_strs", Value.flag, False)
    if request.get("messages") is None:
        text = request.need("prompt").text()
    else:
        text = _rendered(served, request)
    with body.part() as share:
        share.take(bytes_of_text(text))
        ids = model.encode(text)
    refuse_beyond(MAX_VALUES, "tokens", {"tokens": len(ids)})
    texts: dict[int, str] = {}
    if shown:
        texts = {id: model.decode([id]) for id in {*ids}}
    return {
        "count": len(ids),
        "max_model_len": served.model.info.context_length,
        "tokens": ids,
        "token_strs": [texts[id] for id in ids] if shown else None,
    }


async def detokenize(server: Server, body: RequestBody) -> Response:
    """Return the text of ids, without special tokens."""
    request = await body.read(partial(_request, {"tokens"}))
    served = await server.model_or_first(request.optional("model", Value.text, ""))
    return await body.run(lambda: reply({"prompt": _detokenized(served, request)}))


def _detokenized(served: Served, request: Value) -> str:
    model = served.tokenizing()
    return model.decode(token_ids(request.need("tokens"), served.model.info.vocab_size))


async def apply_template(server: Server, body: RequestBody) -> Response:
    """Return the rendered prompt of a chat, as text.

    Source: llama.cpp's ``tools/server/README.md``, "POST /apply-template".
    """
    request = await body.read(partial(_request, _CHAT))
    served = await server.model_or_first(request.optional("model", Value.text, ""))
    # A plain str: msgspec does not encode subclasses.
    return await body.run(lambda: reply({"prompt": str(_rendered(served, request))}))


def _rendered(served: Served, request: Value) -> str:
    """Return the prompt of a chat, rendered with the request's chat template options."""
    body = {name: request.fields().get(name) for name in _CHAT}
    chat = generation.read_chat({"model": "", **body})
    return served.tokenizing().render_chat(chat.messages, chat.config(served.defaults))
