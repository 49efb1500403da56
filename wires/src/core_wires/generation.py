"""OpenAI's chat completions and completions: the bodies of requests.

Source: https://platform.openai.com/docs/api-reference (``openai`` 3.57.0,
``types/chat/completion_create_params.py``, ``types/completion_create_params.py``). No field is
silently ignored: an unsupported field is an error that names it, and only fields that do not affect
answers (user, storage, caching) are accepted.

A field that a body omits is omitted from ``options`` too, so that the caller's defaults apply;
core's own are greedy and 256 tokens, OpenAI's are a temperature of 1 and, for completions, 16
tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from core.errors import OptionError
from core.messages import MessageProblem, read_messages
from core.options import ChatOptions, GenerateConfig
from core.sampling_options import SAMPLING_OPTIONS
from core.types import Message
from core_wires.errors import OPENAI
from core_wires.values import Value, bounded

Kind = Literal["chat", "completion"]
MAX_ANSWERS, MAX_LIKELIEST = 128, 20
"""OpenAI's limits: answers to one prompt, and alternatives listed for a token."""
MAX_PROMPTS = 2048
"""Maximum number of prompts in one request, and of answers to all of them."""

_HARMLESS = {
    *("model", "user", "metadata", "store", "service_tier", "stream", "stream_options"),
    *("safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
    "parallel_tool_calls",  # of tools, which are refused themselves
    *("cache_prompt", "keep_alive"),  # llama.cpp's and Ollama's: caches between requests
}


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Texts to continue (``kind`` "completion", ``prompts``) or a chat to answer (``messages``).

    ``options`` are keywords of ``chat`` or ``generate``, checked as `core.GenerateConfig` checks
    them. The rest is for servers, and an error in a batch line: a stream, with its last chunk of
    usage; several prompts; ``n`` concurrent answers to each; ``echo``, which prepends the prompt to
    its answers; ``likeliest``, the number of alternatives listed for the first token. ``generates``
    is false if only the prompts are to be returned.
    """

    kind: Kind
    model: str
    prompts: tuple[str, ...] = ("",)
    messages: tuple[Message, ...] = ()
    options: ChatOptions = field(default_factory=ChatOptions, hash=False)
    stream: bool = False
    include_usage: bool = False
    n: int = 1
    echo: bool = False
    likeliest: int = 0
    generates: bool = True

    @property
    def prompt(self) -> str:
        """The first prompt."""
        return self.prompts[0]

    @property
    def answers(self) -> int:
        """The number of answers: ``n`` to the first prompt, then ``n`` to the next."""
        return self.n * len(self.prompts)

    def config(self, defaults: GenerateConfig | None = None) -> GenerateConfig:
        """Return these options over a caller's defaults, each variable of the chat template too."""
        defaults, keywords = defaults or GenerateConfig(), dict[str, Any](self.options)
        if variables := keywords.get("chat_template_kwargs"):
            usual = defaults.chat_template_kwargs or {}
            keywords["chat_template_kwargs"] = {**usual, **variables}
        return dataclasses.replace(defaults, **keywords)


def read_chat(body: object) -> GenerationRequest:
    """Return the request of a chat completion's body, parsed.

    Raises `WireError`: 400, with ``error``.
    """
    request = bounded(body, OPENAI)
    refuse_unsupported(
        request, _CHAT_NEUTRAL, {"messages", "top_logprobs", *_CHAT_OPTIONS, *TEMPLATE}
    )
    messages = messages_of(request.need("messages"))
    options = options_of(request, _CHAT_OPTIONS) | template_options(request)
    return GenerationRequest(
        kind="chat",
        model=request.need("model").text(),
        messages=messages,
        options=options,
        stream=request.optional("stream", Value.flag, False),
        include_usage=request.optional("stream_options", _include_usage, False),
        n=request.optional("n", _answers, 1),
        likeliest=_likeliest(request.get("top_logprobs"), options),
    )


def read_completion(body: object) -> GenerationRequest:
    """Return the request of a completion's body, parsed.

    Raises `WireError`: 400, with ``error``.
    """
    request = bounded(body, OPENAI)
    refuse_unsupported(
        request, _COMPLETION_NEUTRAL, {"prompt", "best_of", "echo", *_COMPLETION_OPTIONS}
    )
    echo = request.optional("echo", Value.flag, False)
    generates = not (echo and request.optional("max_tokens", Value.integer, 1) == 0)
    known = {name: read for name, read in _COMPLETION_OPTIONS.items() if name != "max_tokens"}
    options = options_of(request, _COMPLETION_OPTIONS if generates else known)
    n, best_of = request.optional("n", _answers, 1), request.get("best_of")
    if best_of is not None and best_of.integer() != n:
        message = "All answers are returned, so best_of must equal n. Omit it."
        raise best_of.wrong(message, "unsupported_value")
    prompts = _prompts(request.need("prompt"))
    request.need("prompt").counted(n * len(prompts), "answers to all prompts", 1, MAX_PROMPTS)
    return GenerationRequest(
        kind="completion",
        model=request.need("model").text(),
        prompts=prompts,
        options=options,
        stream=request.optional("stream", Value.flag, False),
        include_usage=request.optional("stream_options", _include_usage, False),
        n=n,
        echo=echo,
        likeliest=_likeliest(request.get("logprobs"), options, echo=echo),
        generates=generates,
    )


# --------------------------------------------------------------------------- fields


def messages_of(messages: Value) -> tuple[Message, ...]:
    """Return the messages of an array. Raises `WireError`."""
    items = messages.items()
    if not items:
        raise messages.wrong("At least one message is required.", "too_short")
    try:
        return tuple(read_messages([item.data for item in items]))
    except MessageProblem as problem:
        path = (*messages.path, *problem.path)
        raise messages.dialect.invalid(path, problem.problem, problem.code) from None


def _prompts(prompt: Value) -> tuple[str, ...]:
    """Return one text, or the texts of an array."""
    if isinstance(prompt.data, str):
        return (prompt.data,)
    items = prompt.items()
    prompt.counted(len(items), "prompts", 1, MAX_PROMPTS)
    if any(isinstance(item.data, int | list) for item in items):
        raise prompt.wrong("Token ids are not supported. Send texts.", "unsupported_value")
    return tuple(item.text() for item in items)


def _answers(value: Value) -> int:
    value.counted(value.integer(), "answers", 1, MAX_ANSWERS)
    return value.integer()


def _likeliest(value: Value | None, options: ChatOptions, *, echo: bool = False) -> int:
    """Return the number of alternatives to list for the first token.

    Models only return the full distribution there.
    """
    count = 0 if value is None else value.integer()
    if value is None or count == 0:
        return 0
    value.counted(count, "alternatives for a token", 0, MAX_LIKELIEST)
    if not options.get("return_logprobs"):
        raise value.wrong("This requires logprobs. Set it as well.", "unsupported_value")
    if echo or options.get("max_tokens") != 1:
        message = "Alternatives are only available for the first token: set max_tokens=1"
        advice = " and omit echo." if echo else ", or request 0 alternatives."
        raise value.wrong(message + advice, "unsupported_value")
    return count


def _include_usage(stream_options: Value) -> bool:
    return stream_options.optional("include_usage", Value.flag, False)


# --------------------------------------------------------------------------- options


def _completion_logprobs(value: Value) -> bool:
    value.counted(value.integer(), "alternatives for a token", 0, MAX_LIKELIEST)
    return True


def _stop(value: Value) -> tuple[str, ...]:
    if isinstance(value.data, str):
        return (value.data,)
    return tuple(item.text() for item in value.items())


def _top_k(value: Value) -> int:
    return max(0, value.integer())  # vLLM's -1 is off, as 0 is


Reader = Callable[[Value], object]
# By vLLM's name, core's name of each option, and how it is read.
_VLLM_NAMES = {"repeat_penalty": "repetition_penalty"}
_SHARED: dict[str, tuple[str, Reader]] = {
    "max_tokens": ("max_tokens", Value.integer),
    "stop": ("stop", _stop),
    **{
        _VLLM_NAMES.get(option.name, option.name): (
            option.name,
            Value.integer if option.kind is int else Value.number,
        )
        for option in SAMPLING_OPTIONS
    },
    "top_k": ("top_k", _top_k),
}
_CHAT_OPTIONS = _SHARED | {
    "max_completion_tokens": ("max_tokens", Value.integer),
    "logprobs": ("return_logprobs", Value.flag),
}
RESPONSE_OPTIONS = {
    "max_output_tokens": ("max_tokens", Value.integer),
    **{name: option for name, option in _SHARED.items() if name not in ("max_tokens", "stop")},
}
"""The options of ``/v1/responses`` (`core_wires.responses`)."""
_COMPLETION_OPTIONS = _SHARED | {"logprobs": ("return_logprobs", _completion_logprobs)}


# Fields for the chat template, by vLLM's names; the first is the short form of one variable.
_THINKING, _OPENS_TURN = "enable_thinking", "add_generation_prompt"
TEMPLATE = (_THINKING, "chat_template_kwargs", "continue_final_message", _OPENS_TURN)
"""The fields for the chat template."""


def template_options(request: Value) -> ChatOptions:
    """Return the keywords of ``chat`` for the chat template."""
    options = ChatOptions()
    if variables := _variables(request):
        options["chat_template_kwargs"] = variables

    continues = request.optional("continue_final_message", Value.flag, False)
    opens_turn = request.get(_OPENS_TURN)
    if opens_turn is not None and opens_turn.flag() is continues:
        message = "This must be the opposite of continue_final_message."
        raise opens_turn.wrong(message, "unsupported_value")
    if continues:
        options["continue_final_message"] = True
    return options


def _variables(request: Value) -> dict[str, object]:
    given, thinking = request.get("chat_template_kwargs"), request.get(_THINKING)
    variables = {} if given is None else dict(given.fields())
    if thinking is not None:
        enabled = thinking.flag()
        if variables.setdefault(_THINKING, enabled) is not enabled:
            raise thinking.wrong("This contradicts chat_template_kwargs. Set only one of them.")
    try:
        GenerateConfig(chat_template_kwargs=variables)
    except OptionError as error:
        raise (given or request).wrong(str(error)) from None
    return variables


def options_of(request: Value, known: Mapping[str, tuple[str, Reader]]) -> ChatOptions:
    """Return keywords of ``generate``, each checked separately so that an error names its field."""
    options: dict[str, object] = {}
    for wire_name, (name, read) in known.items():
        value = request.get(wire_name)
        if value is None:
            continue
        read_value = read(value)
        if options.setdefault(name, read_value) != read_value:
            raise value.wrong(f"This contradicts another field for {name}. Set only one of them.")
        try:
            GenerateConfig(**{name: read_value})  # type: ignore[arg-type]
        except OptionError as error:
            raise value.wrong(str(error)) from None
    return cast("ChatOptions", options)


# --------------------------------------------------------------------------- refusals

_PENALTY = "Use repetition_penalty, or remove it."
_INSTEAD = {"presence_penalty": _PENALTY, "frequency_penalty": _PENALTY}
# Unsupported fields, and the values with which they have no effect.
_EMPTY: tuple[object, ...] = ([], {}, "")
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "logit_bias": _EMPTY,
    # vLLM's and other servers'.
    "skip_special_tokens": (True,),
    "ignore_eos": (False,),
    "stop_token_ids": _EMPTY,
    "extra_body": _EMPTY,
}
_CHAT_NEUTRAL = _NEUTRAL | {
    "tools": _EMPTY,
    "functions": _EMPTY,
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
_COMPLETION_NEUTRAL = _NEUTRAL | {"suffix": _EMPTY}


def _same(data: object, other: object) -> bool:
    return data == other and type(data) is type(other)  # 1 and true are two values


def refuse_unsupported(
    request: Value,
    neutral: Mapping[str, tuple[object, ...]],
    known: set[str],
    instead: str = "Remove it.",
) -> None:
    """Raise `WireError` for unsupported values, then for unknown fields.

    ``neutral`` are the values with which unsupported fields have no effect.
    """
    for name, values in neutral.items():
        value = request.get(name)
        if value is not None and not any(_same(value.data, one) for one in values):
            message = f"This is not supported. {_INSTEAD.get(name, instead)}"
            raise value.wrong(message, "unsupported_value")
    request.only({"n", *neutral, *known, *_HARMLESS})
