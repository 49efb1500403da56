"""Checks of the forms of a message: parts, neutral fields, names, and the turn after the last."""

from __future__ import annotations

from functools import partial
from typing import Any

from core.errors import ChatTemplateError, InvalidOptionError
from core.protocols import Capability
from core.types import Conversation, Message
from core_conformance.checking import ask
from core_conformance.checking.ask import Answer, evidence, generate, read, speaks
from core_conformance.checking.calls import ending
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import same_answers
from core_conformance.checking.subject import Subject

_LENGTH = 6  # tokens
_HELLO = Message("user", "Hello")
_SYSTEM = "Answer in one word."
_WORDS = ("Good morning", "and good night", "from", "here")
_KINDS = ("text", "input_text", "output_text")
_PARTS = [
    *({"type": kind, "text": word} for kind, word in zip(_KINDS, _WORDS, strict=False)),
    {"type": "refusal", "refusal": _WORDS[3]},
]
_NEUTRAL: dict[str, object] = {
    "name": None,
    "tool_calls": [],
    "function_call": {},
    "audio": "",
    "weight": 1,
}
_CALL = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
_IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
_WRONG: tuple[tuple[dict[str, object], type[Exception]], ...] = (
    ({"role": "user", "content": [_PARTS[0], _IMAGE]}, TypeError),
    ({"role": "user", "content": "Hello", "weight": 0}, TypeError),
    ({"role": "user", "content": "Hello", "tool_calls": _CALL}, TypeError),
    ({"role": "tool", "content": "Hello"}, InvalidOptionError),
)
_NO_TURNS = (
    "the template refuses a conversation that ends with the assistant's message: use a model "
    "whose template accepts it"
)


@check(
    "chat.parts",
    "Text parts MUST be joined by line breaks, developer mean system, and a field with a neutral "
    "value change nothing: the prompt is the same to the letter. Any other part, field or role "
    "MUST be refused with its index",
    Capability.CHAT,
)
def parts_are_joined(subject: Subject) -> None:
    system, joined = Message("system", _SYSTEM), Message("user", "\n".join(_WORDS))
    pairs: tuple[tuple[Conversation, Conversation], ...] = (
        ([joined], [{"role": "user", "content": _PARTS}]),
        ([_HELLO], [{"role": "user", "content": "Hello", **_NEUTRAL}]),
        ([system, _HELLO], [{"role": "developer", "content": _SYSTEM}, _HELLO]),
    )
    for plain, other in pairs:
        _same_conversation(subject, plain, other)

    for wrong, kind in _WRONG:
        error = ending(partial(subject.model.chat, [_HELLO, wrong], max_tokens=1)).error
        must(
            isinstance(error, kind) and "1" in str(error),
            f"chat of a conversation whose message 1 is {wrong!r} gave {error!r}: expected a "
            f"{kind.__name__} that names the index",
        )


@check(
    "chat.names",
    "A message's name MUST change the prompt, or be refused with a ChatTemplateError: it is never "
    "dropped",
    Capability.CHAT,
)
def names_count(subject: Subject) -> None:
    named: list[Conversation] = [
        [Message("user", "Hello", "Zacharias")],
        [{"role": "user", "content": "Hello", "name": "Zacharias"}],
    ]
    for turns in named:
        end = ending(partial(subject.model.chat, turns, max_tokens=1))
        rendered = ask.rendered(subject, turns) if subject.declares(Capability.TOKENIZING) else None
        must(
            end.error is None or isinstance(end.error, ChatTemplateError),
            f"chat of {turns!r} gave {end.error!r}: expected an answer, or a ChatTemplateError",
        )
        if subject.declares(Capability.TOKENIZING):
            must(
                (rendered is None) == isinstance(end.error, ChatTemplateError)
                and rendered != ask.rendered(subject, [_HELLO]),
                f"chat of {turns!r} ended with {end.error!r}, and its prompt is {rendered!r:.300}: "
                "it has to depend on the name, or to be refused",
            )


@check(
    "chat.new-turn",
    "Without continue_final_message a new turn MUST begin after the last message, the assistant's "
    "too: the prompt does not end with its content",
    Capability.CHAT,
    Capability.TOKENIZING,
)
def a_new_turn_begins(subject: Subject) -> None:
    speaks(subject, Capability.CHAT)
    begun = "The weather is"
    turns = [_HELLO, Message("assistant", begun)]
    prompt = ask.rendered(subject, turns)
    testable(prompt is not None, _NO_TURNS)
    assert prompt is not None
    must(
        begun in prompt and not prompt.rstrip().endswith(begun),
        f"the prompt {prompt!r:.300} of a conversation that ends with the assistant's {begun!r} "
        "continues that message, though continue_final_message is not set",
    )
    if subject.declares(Capability.GENERATE):
        answer = _answer(subject, turns)
        pairs = [(answer, generate(subject, prompt, _LENGTH))] if answer else []
        same_answers(subject, pairs, "chat after the assistant's message, and generate after it")


def _same_conversation(subject: Subject, plain: Conversation, other: Conversation) -> None:
    """Check that two spellings of a conversation have one prompt, or one answer."""
    what = f"{plain!r} and {other!r}"
    if subject.declares(Capability.TOKENIZING):
        prompts = [ask.rendered(subject, turns) for turns in (plain, other)]
        must(prompts[0] == prompts[1], f"{what} have the prompts {prompts[0]!r} and {prompts[1]!r}")
    answers = [_answer(subject, turns) for turns in (plain, other)]
    must(
        (answers[0] is None) == (answers[1] is None),
        f"of {what}, chat takes one and refuses the other with a ChatTemplateError",
    )
    if answers[0] and answers[1]:
        same_answers(subject, [(answers[0], answers[1])], f"chat of {what}")


def _answer(subject: Subject, turns: Conversation) -> Answer | None:
    options: dict[str, Any] = evidence(subject)
    try:
        return read(subject.model.chat(turns, max_tokens=_LENGTH, **options))
    except ChatTemplateError:
        return None
