"""What a model reads, shown: the ids of a text, their text, and the prompt of a chat.

``/tokenize`` and ``/detokenize`` are vLLM's (``vllm/entrypoints/serve/tokenize/protocol.py``). Of
its fields, those are read that say what the text is; ids are always those that a prompt would have,
a leading BOS included.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.responses import Response

from core.extensions import Tokenizing
from core.wires import generation
from core.wires.errors import OPENAI
from core.wires.values import Value, bounded
from core_server.replies import reply
from core_server.served import Served

if TYPE_CHECKING:
    from core_server.app import Server

_ON = "add_special_tokens"  # what is done here is what it says
_CHAT = ("messages", *generation.TEMPLATE)


async def tokenize(server: Server, body: object) -> Response:
    """The ids of a prompt, or of a chat through the model's template."""
    request = bounded(body, OPENAI)
    request.only({"model", "prompt", "return_token_strs", _ON, *_CHAT})
    flag = request.get(_ON)
    if flag is not None and not flag.flag():
        raise flag.wrong("Ids are those that a prompt has, all of it.", "unsupported_value")
    served = await server.model_or_first(_text(request, "model"))
    model = served.tokenizing()

    def work() -> list[int]:
        if request.get("messages") is None:
            return model.encode(request.need("prompt").text())
        return model.encode(_rendered(served, request))

    ids = await asyncio.to_thread(work)
    shown = request.get("return_token_strs")
    length = served.model.info.context_length
    return reply(
        {
            "count": len(ids),
            "max_model_len": length,
            "tokens": ids,
            "token_strs": [model.decode([id]) for id in ids] if shown and shown.flag() else None,
        }
    )


async def detokenize(server: Server, body: object) -> Response:
    """The text of ids, special tokens left out."""
    request = bounded(body, OPENAI)
    request.only({"model", "tokens"})
    served = await server.model_or_first(_text(request, "model"))
    model, tokens = served.tokenizing(), request.need("tokens")
    size = served.model.info.vocab_size
    ids = [each.integer() for each in tokens.items()]
    for place, id in zip(tokens.items(), ids, strict=True):
        if not 0 <= id < size:
            raise place.wrong(f"The model has the ids 0 to {size - 1}.")
    return reply({"prompt": await asyncio.to_thread(_decoded, model, ids)})


async def apply_template(server: Server, body: object) -> Response:
    """The prompt that a chat's messages make, as text.

    Source: llama.cpp's ``tools/server/README.md``, "POST /apply-template".
    """
    request = bounded(body, OPENAI)
    request.only({"model", *_CHAT})
    served = await server.model_or_first(_text(request, "model"))
    rendered = await asyncio.to_thread(_rendered, served, request)
    return reply({"prompt": str(rendered)})  # msgspec takes no other kind of str


def _rendered(served: Served, request: Value) -> str:
    """The prompt of a chat, which the chat template's options of the request are for."""
    body = {name: request.fields().get(name) for name in _CHAT}
    chat = generation.read_chat({"model": "", **body})
    return served.tokenizing().render_chat(chat.messages, chat.config(served.defaults))


def _decoded(model: Tokenizing, ids: list[int]) -> str:
    return model.decode(ids)


def _text(request: Value, name: str) -> str:
    value = request.get(name)
    return value.text() if value else ""
