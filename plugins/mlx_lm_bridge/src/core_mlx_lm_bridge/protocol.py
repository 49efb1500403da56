"""The protocol between the caller's process and its worker: one JSON object per line.

The caller writes `Request` lines to one pipe and reads `Answer` lines from another, which nothing
else uses.
``type`` names the message, ``id`` the request that it belongs to. Unknown fields are ignored, so
that either side may add new ones first. docs/mlx_lm_bridge.md has every message with an example.

This module is shared by both sides and imports only msgspec.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

VERSION = 1
"""The protocol's version, sent in the first message; a worker of another version refuses it."""

MAX_REQUEST_BYTES = 256 * 2**20
"""The longest line that a worker accepts: a prompt may be as long as a book."""
MAX_ANSWER_BYTES = 2**20
"""The longest line that a caller accepts: an answer has the text of one or two tokens."""


class ProtocolMessage(msgspec.Struct, tag_field="type", tag=str.lower, omit_defaults=True):
    """A line of the protocol. Ids begin at 1; 0 means no request."""

    id: int = 0


class FamilyTemplate(msgspec.Struct):
    """A jinja template for models that have the special token ``mark``."""

    mark: str
    template: str


class Load(ProtocolMessage):
    """Load the model at ``path``; the first message. Answered by `Ok` or `Error`.

    ``context_len`` 0 means the model's. With ``cpu`` nothing is computed on a GPU.
    ``prefill_step_size`` is in tokens. A model without a chat template gets the first of
    ``chat_formats`` whose mark it has.
    """

    path: str = ""
    version: int = 0
    context_len: int = 0
    adapter_path: str | None = None
    prefill_step_size: int = 512
    cpu: bool = False
    chat_formats: list[FamilyTemplate] = []


class Info(ProtocolMessage):
    """Ask for the facts of the loaded model. Answered by `Ok` or `Error`."""


class GenerationOptions(ProtocolMessage):
    """Options of a generation: the fields of `core.GenerateConfig` that a worker uses."""

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    seed: int | None = None
    stop_tokens: list[int] = []  # msgspec copies it
    return_logprobs: bool = False


class Generate(GenerationOptions):
    """Continue ``prompt``. Answered by any number of `TokenAnswer`, then `Done` or `Error`."""

    prompt: str = ""


class ChatTurn(msgspec.Struct, omit_defaults=True):
    """A turn of a chat: the role, the text, and the speaker's name."""

    role: str
    content: str
    name: str | None = None


class Chat(GenerationOptions):
    """Answer a conversation, through the model's chat template. Answered like `Generate`.

    ``chat_template_kwargs`` are the template's variables; with ``continue_final_message`` the last
    message, an assistant's, is continued.
    """

    messages: list[ChatTurn] = []
    chat_template_kwargs: dict[str, Any] = {}  # msgspec copies both
    continue_final_message: bool = False


class Cancel(ProtocolMessage):
    """Stop the request ``id``, which is then answered by `Done` with "cancelled". Has no answer.

    Ignored for a request that has ended.
    """


class Quit(ProtocolMessage):
    """Exit. Has no answer; the end of the request pipe means the same."""


class Ok(ProtocolMessage):
    """The facts of the loaded model.

    ``dtype`` is the dtype of its weights, ``device`` its device ("cpu: ..." or "gpu: ..."),
    ``blas`` the library in place of MLX's BLAS on a Linux CPU, ``mlx_lm`` the version of mlx-lm.
    ``ignored_window`` is the sliding window that mlx-lm ignores, in tokens; 0 for none.
    """

    version: int = 0
    model_type: str = ""
    vocab_size: int = 0
    layers: int = 0
    hidden_size: int = 0
    quant_bits: int = 0
    quant_group: int = 0
    context_length: int = 0
    dtype: str = ""
    device: str = ""
    blas: str = ""
    mlx_lm: str = ""
    ignored_window: int = 0


class TokenAnswer(ProtocolMessage, tag="token"):
    """A generated token; with ``open``, more of its text may come, in the next token or `Done`."""

    token: str = ""
    token_id: int = 0
    logprob: float | None = None
    open: bool = False


class Done(ProtocolMessage, omit_defaults=False):
    """The last answer to a `Generate` or `Chat`, with mlx-lm's metrics.

    ``finish_reason``: "stop", "length" or "cancelled". ``token``: text of the previous tokens.
    ``generation_tokens`` includes the terminal one. ``prompt_tps`` and ``generation_tps`` are
    tokens per second, until the first token and after it.
    """

    done: bool = True
    finish_reason: str = "stop"
    token: str = ""
    prompt_tokens: int = 0
    prompt_tps: float = 0.0
    generation_tokens: int = 0
    generation_tps: float = 0.0
    peak_memory_bytes: int = 0
    active_memory_bytes: int = 0


class Error(ProtocolMessage):
    """The last answer to a request that failed.

    ``error`` names a class of ``core.errors``, or the exception class in the worker. ``length`` and
    ``limit`` belong to a PromptTooLongError. ``variable`` is one that the chat template does not
    read; ``message`` then lists the variables that it does.
    """

    error: str = ""
    message: str = ""
    length: int = 0
    limit: int = 0
    variable: str = ""


Request = Load | Info | Generate | Chat | Cancel | Quit
Answer = Ok | TokenAnswer | Done | Error


class _Header(msgspec.Struct):
    id: int = 0


_encoder = msgspec.json.Encoder()
_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
_headers = msgspec.json.Decoder(_Header)
_WRONG = (msgspec.MsgspecError, ValueError, RecursionError)  # ValueError: not UTF-8


class ProtocolError(Exception):
    """The error of an invalid line. ``id`` is its request's if that can be read, else 0."""

    def __init__(self, message: str, id: int = 0) -> None:
        super().__init__(message)
        self.id = id


def encode(message: ProtocolMessage) -> bytes:
    """Return a message as a line, its end included.

    Raises UnicodeEncodeError for lone surrogates.
    """
    return _encoder.encode(message) + b"\n"


def decode_request(line: bytes) -> Request:
    """Decode a line of the caller as a request. Raises `ProtocolError`."""
    return _decode(_requests, line)


def decode_answer(line: bytes) -> Answer:
    """Decode a line of the worker as an answer. Raises `ProtocolError`."""
    return _decode(_answers, line)


def _decode(decoder: msgspec.json.Decoder[T], line: bytes) -> T:
    try:
        return decoder.decode(line)
    except _WRONG as error:
        raise ProtocolError(f"{error} in {_shown(line)}", _id(line)) from None


def _id(line: bytes) -> int:
    try:
        return _headers.decode(line).id
    except _WRONG:
        return 0


def _shown(line: bytes, limit: int = 120) -> str:
    text = line[:limit].decode(errors="backslashreplace")
    return repr(text) + ("…" if len(line) > limit else "")


class LineSplitter:
    """A splitter of a byte stream into lines of at most ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []  # of the line that has not ended
        self._length = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` completes, without their ends.

        Raises `ProtocolError` if one becomes too long; the splitter is then unusable.
        """
        *ended, rest = data.split(b"\n")
        if ended:
            ended[0] = b"".join([*self._parts, ended[0]])
            self._parts, self._length = [], 0
        self._parts.append(rest)
        self._length += len(rest)
        if max(self._length, *map(len, ended), 0) > self._limit:
            raise ProtocolError(f"a line longer than {self._limit} bytes")
        return ended
