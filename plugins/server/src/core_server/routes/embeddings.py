"""OpenAI's ``/v1/embeddings``: the last layer's hidden state of each text.

Source: https://platform.openai.com/docs/api-reference/embeddings. Of an encoder it is the
embedding, pooled and normalised as the model's files say. Of a language model it is the state at
the last token, as it is: not of length 1, and not trained to compare texts.
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from core.protocols import Capability
from core.types import HiddenResult
from core_server.access_log import note
from core_server.bounds import MAX_CHARACTERS, bytes_of_rows, refuse_beyond
from core_server.queues.batch_calls import StateCall
from core_server.replies import reply
from core_server.request_body import RequestBody
from core_server.served import Served
from core_server.server import Server
from core_wires.errors import OPENAI
from core_wires.values import Value, bounded

_FIELDS = {"model", "input", "encoding_format", "dimensions", "user"}


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Texts to embed; ``dimensions`` is the required size, if any."""

    model: str
    texts: tuple[str, ...]
    as_base64: bool
    dimensions: Value | None


async def embed(server: Server, body: RequestBody) -> Response:
    """Return an embedding for each text. Raises the first text's error, if any."""
    request = await body.read(read)
    served = await server.model_or_first(request.model)
    served.needs(Capability.HIDDEN_STATES, "embeddings")
    size = served.model.info.hidden_size
    if request.dimensions is not None and request.dimensions.integer() != size:
        raise request.dimensions.wrong(
            f"This model's embeddings have {size} numbers. Omit the field.", "unsupported_value"
        )
    unit = "characters of texts"
    refuse_beyond(MAX_CHARACTERS, unit, {unit: sum(map(len, request.texts))})
    body.share.take(bytes_of_rows(len(request.texts), numbers=len(request.texts) * size))
    answered = await served.questions.run(request.texts, StateCall())
    note(len(request.texts))
    return await body.run(lambda: reply(_response(served, request, answered.results)))


def read(body: object) -> EmbeddingRequest:
    """Return the request in a parsed body. Raises `WireError`."""
    request = bounded(body, OPENAI)
    request.only(_FIELDS)
    given, form = request.need("input"), request.get("encoding_format")
    texts = (given,) if isinstance(given.data, str) else tuple(given.items())
    given.counted(len(texts), "texts", 1, 1_000_000)
    if any(isinstance(text.data, int | list) for text in texts):
        raise given.wrong("Token ids are not supported. Send texts.", "unsupported_value")
    if form is not None and form.text() not in ("float", "base64"):
        raise form.wrong("Expected float or base64.")
    return EmbeddingRequest(
        request.optional("model", Value.text, ""),
        tuple(text.text() for text in texts),
        form is not None and form.text() == "base64",
        request.get("dimensions"),
    )


def _response(
    served: Served, request: EmbeddingRequest, results: Sequence[HiddenResult]
) -> dict[str, object]:
    states = [result.raise_for_error().states or array("f") for result in results]
    tokens = served.tokens(request.texts, results)
    return {
        "object": "list",
        "data": [
            {
                "object": "embedding",
                "index": index,
                "embedding": _base64(numbers) if request.as_base64 else numbers.tolist(),
            }
            for index, numbers in enumerate(states)
        ],
        "model": served.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _base64(numbers: array[float]) -> str:
    """Return float32 values, the least significant byte first, as OpenAI's clients read them."""
    if sys.byteorder == "big":
        numbers = array("f", numbers)
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
