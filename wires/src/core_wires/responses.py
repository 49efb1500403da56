"""OpenAI's ``/v1/responses``: a chat in the newer format, for text alone.

Source: https://platform.openai.com/docs/api-reference/responses (``openai`` 3.57.0,
``types/responses``). A request is read as a `GenerationRequest` of kind "chat". Nothing is stored:
a conversation is sent as a whole in ``input``, and fields that refer to stored ones are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from core.types import FinishReason, Message
from core_wires import generation
from core_wires.completions import finish_reason
from core_wires.errors import OPENAI
from core_wires.generation import GenerationRequest
from core_wires.usage import Usage
from core_wires.values import Value, bounded

Event = dict[str, object]
_ECHOED = ("instructions", "max_output_tokens", "temperature", "top_p", "metadata")
_OF_OUTPUT = ("id", "status", "phase", "type")  # of an answer that is sent back as input
_CHAT = "Use /v1/chat/completions with the complete conversation."
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "include": ([],),
    "background": (False,),
    "truncation": ("disabled",),
    "top_logprobs": (0,),
    "text": ({}, {"format": {"type": "text"}}),
    **dict.fromkeys(("previous_response_id", "conversation", "prompt", "reasoning"), ()),
}


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """A chat to answer, and the fields of the request that its answer repeats."""

    chat: GenerationRequest
    echoed: Mapping[str, object]


def read(body: object) -> ResponsesRequest:
    """Return the request of a parsed body. Raises `WireError`: 400, with ``error``."""
    request = bounded(body, OPENAI)
    options = generation.RESPONSE_OPTIONS
    known = {"input", "instructions", *options, *generation.TEMPLATE}
    generation.refuse_unsupported(request, _NEUTRAL, known, instead=_CHAT)
    chat = GenerationRequest(
        kind="chat",
        model=request.need("model").text(),
        messages=_messages(request),
        options=generation.options_of(request, options) | generation.template_options(request),
        stream=request.optional("stream", Value.flag, False),
    )
    fields = request.fields()
    return ResponsesRequest(chat, {name: fields.get(name) for name in _ECHOED})


def _messages(request: Value) -> tuple[Message, ...]:
    given = request.need("input")
    before = request.optional("instructions", Value.text, "")
    system = (Message("system", before),) if before else ()
    if isinstance(given.data, str):
        return (*system, Message("user", given.data))
    for item in given.items():
        kind = item.get("type")
        if kind is not None and kind.text() != "message":
            raise kind.wrong("Only messages of text are supported.", "unsupported_value")
    items = [
        {name: value for name, value in item.fields().items() if name not in _OF_OUTPUT}
        for item in given.items()
    ]
    return (*system, *generation.messages_of(Value(items, given.path, OPENAI)))


class Answer:
    """Maker of the bodies of one answer: the complete one, or the events of a stream."""

    def __init__(self, request: ResponsesRequest, id: str, created: int, model: str) -> None:
        self._id = f"resp_{id}"
        self._item = f"msg_{id}"
        self._number = 0
        self._facts: Event = {
            "id": self._id,
            "object": "response",
            "created_at": created,
            "model": model,
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
            **request.echoed,
        }

    def body(self, text: str, reason: FinishReason, usage: Usage) -> Event:
        """Return the complete answer. Raises `WireError` for a cancelled or failed one."""
        status = _status(reason)
        details = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return self._response(status, [self._message(text, status)]) | {
            "incomplete_details": details,
            "usage": {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {
                    "cached_tokens": usage.cached_tokens,
                    "cache_write_tokens": 0,
                },
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.total_tokens,
            },
        }

    def begin(self) -> Iterator[Event]:
        """Yield the events before the first token."""
        begun = self._response("in_progress", [])
        yield self._event("response.created", response=begun)
        yield self._event("response.in_progress", response=begun)
        item = self._message("", "in_progress") | {"content": []}
        yield self._event("response.output_item.added", output_index=0, item=item)
        yield self._in_part("response.content_part.added", part=_part(""))

    def token(self, text: str) -> Event:
        """Return the event of one token."""
        return self._in_part("response.output_text.delta", delta=text, logprobs=[])

    def end(self, text: str, reason: FinishReason, usage: Usage) -> Iterator[Event]:
        """Yield the events after the last token. Raises like `body`."""
        status = _status(reason)
        body = self.body(text, reason, usage)
        yield self._in_part("response.output_text.done", text=text, logprobs=[])
        yield self._in_part("response.content_part.done", part=_part(text))
        item = self._message(text, status)
        yield self._event("response.output_item.done", output_index=0, item=item)
        yield self._event(f"response.{status}", response=body)

    def failed(self, error: Mapping[str, object]) -> Event:
        """Return the event of an error after the first token."""
        facts = {name: error.get(name) for name in ("code", "message", "param")}
        return self._event("error", **facts)

    def _response(self, status: str, output: list[Event]) -> Event:
        nothing = {"error": None, "incomplete_details": None, "usage": None}
        return self._facts | nothing | {"status": status, "output": output}

    def _message(self, text: str, status: str) -> Event:
        facts = {"id": self._item, "type": "message", "role": "assistant", "status": status}
        return facts | {"content": [_part(text)]}

    def _in_part(self, kind: str, **facts: object) -> Event:
        return self._event(kind, item_id=self._item, output_index=0, content_index=0, **facts)

    def _event(self, kind: str, **facts: object) -> Event:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **facts}


def _part(text: str) -> Event:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _status(reason: FinishReason) -> str:
    return "incomplete" if finish_reason(reason) == "length" else "completed"
