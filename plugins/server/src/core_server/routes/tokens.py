"""Tokenising routes: the ids of a text, the text of ids, and the prompt of a chat.

``/tokenize`` and ``/detokenize`` are vLLM's (``vllm/entrypoints/serve/tokenize/protocol.py``). Only
its fields that determine the text are supported; the ids are always those of a prompt, a leading
BOS included.
"""

from __future__ import annotations

from starlette.responses import Response

from core_server.bounds import bytes_of_text, refuse_beyond
from core_server.replies import reply
from core_server.request_body import RequestBody
from core_server.served import Served
from core_server.server import Server
from core_wires import generation
from core_wires.errors import OPENAI
from core_wires.values import MAX_VALUES, Value, bounded

_ON = "add_special_tokens"  # what is done here is what it says
_CHAT = ("messages", *generation.TEMPLATE)


async def tokenize(server: Server, body: RequestBody) -> Response:
    """Return the ids of a prompt, or of a chat through the model's template."""
    request = await body.read(_to_tokenize)
    served = await server.model_or_first(_text(request, "model"))
    return await body.run(lambda: reply(_tokenized(served, request, body)))


def _to_tokenize(body: object) -> Value:
    request = bounded(body, OPENAI)
    request.only({"model", "prompt", "return_token_strs", _ON, *_CHAT})
    flag = request.get(_ON)
    if flag is not None and not flag.flag():
        raise flag.wrong("Must be true: ids include special tokens.", "unsupported_value")
    return request


def _tokenized(served: Served, request: Value, body: RequestBody) -> dict[str, object]:
    model, shown = served.tokenizing(), request.get("return_token_strs")
    if request.get("messages") is None:
        text = request.need("prompt").text()
    else:
        text = _rendered(served, request)
    with body.part() as share:
        share.take(bytes_of_text(text))
        ids = model.encode(text)
    refuse_beyond(MAX_VALUES, "tokens", {"tokens": len(ids)})
    texts: dict[int, str] = {}
    if shown and shown.flag():
        texts = {id: model.decode([id]) for id in {*ids}}
    return {
        "count": len(ids),
        "max_model_len": served.model.info.context_length,
        "tokens": ids,
        "token_strs": [texts[id] for id in ids] if shown and shown.flag() else None,
    }


async def detokenize(server: Server, body: RequestBody) -> Response:
    """Return the text of ids, without special tokens."""
    request = await body.read(_to_detokenize)
    served = await server.model_or_first(_text(request, "model"))
    return await body.run(lambda: reply({"prompt": _detokenized(served, request)}))


def _to_detokenize(body: object) -> Value:
    request = bounded(body, OPENAI)
    request.only({"model", "tokens"})
    return request


def _detokenized(served: Served, request: Value) -> str:
    model, size = served.tokenizing(), served.model.info.vocab_size
    tokens = request.need("tokens").items()
    ids = [each.integer() for each in tokens]
    for place, id in zip(tokens, ids, strict=True):
        if not 0 <= id < size:
            raise place.wrong(f"Token id out of range: expected 0 to {size - 1}.")
    return model.decode(ids)


async def apply_template(server: Server, body: RequestBody) -> Response:
    """Return the rendered prompt of a chat, as text.

    Source: llama.cpp's ``tools/server/README.md``, "POST /apply-template".
    """
    request = await body.read(_to_apply)
    served = await server.model_or_first(_text(request, "model"))
    # msgspec takes no other kind of str.
    return await body.run(lambda: reply({"prompt": str(_rendered(served, request))}))


def _to_apply(body: object) -> Value:
    request = bounded(body, OPENAI)
    request.only({"model", *_CHAT})
    return request


def _rendered(served: Served, request: Value) -> str:
    """Return the prompt of a chat, rendered with the request's chat template options."""
    body = {name: request.fields().get(name) for name in _CHAT}
    chat = generation.read_chat({"model": "", **body})
    return served.tokenizing().render_chat(chat.messages, chat.config(served.defaults))


def _text(request: Value, name: str) -> str:
    value = request.get(name)
    return value.text() if value else ""
