"""chat: generate behind the model's own template, in which users are plain text."""

from __future__ import annotations

from core.capability import Capability
from core.errors import ChatTemplateError
from core.types import Message
from core_conformance.answers import Answer, evidence, generate, read, tokenizing
from core_conformance.model import must
from core_conformance.registry import check
from core_conformance.relations import same_speech
from core_conformance.speaking import speaks
from core_conformance.subject import Subject

_HELLO = (Message("user", "Hello"),)
_TURNS = (Message("user", "Hello"), Message("assistant", "Hi!"), Message("user", "How are you?"))
_SYSTEM = (Message("system", "Answer in one word."), *_HELLO)


@check(
    "chat.answers",
    "chat MUST answer a conversation of several turns and leave the messages as they are",
    Capability.CHAT,
)
def conversations_are_answered(subject: Subject) -> None:
    for turns in (_HELLO, _TURNS):
        given = list(turns)
        answer = _chat(subject, given)
        if answer is None:
            continue
        must(
            answer.finish_reason in ("stop", "length"),
            f"chat ended with finish_reason={answer.finish_reason!r}",
        )
        must(given == list(turns), f"chat changed the messages: {given}")


@check(
    "chat.system",
    "A system message MUST be used, or raise ChatTemplateError where the template has no place",
    Capability.CHAT,
    Capability.TOKENIZING,
)
def system_messages_count(subject: Subject) -> None:
    rendered = _render(subject, _SYSTEM)
    answer = _chat(subject, _SYSTEM)
    must(
        (rendered is None) == (answer is None),
        "of chat and render_chat one takes a system message, and the other raises "
        "ChatTemplateError",
    )
    must(
        rendered is None or _SYSTEM[0].content in rendered,
        f"the system message {_SYSTEM[0].content!r} is not in the prompt {rendered!r:.300}",
    )


@check(
    "chat.content",
    "render_chat MUST give the prompt that holds every message, in order",
    Capability.CHAT,
    Capability.TOKENIZING,
)
def every_message_is_there(subject: Subject) -> None:
    rendered = _render(subject, _TURNS)
    if rendered is None:
        return
    place = 0
    for message in _TURNS:
        found = rendered.find(message.content, place)
        must(
            found >= 0,
            f"{message!r} is not in the rest of the prompt {rendered[place:]!r:.300}",
        )
        place = found + len(message.content)


@check(
    "chat.equals-generate",
    "chat(messages) MUST be generate(render_chat(messages))",
    Capability.CHAT,
    Capability.GENERATE,
    Capability.TOKENIZING,
)
def chat_is_generate(subject: Subject) -> None:
    pairs = []
    for turns in (_HELLO, _TURNS):
        prompt, answer = _render(subject, turns), _chat(subject, turns)
        if prompt is not None and answer is not None:
            pairs.append((answer, generate(subject, prompt, 6)))
    same_speech(subject, pairs, "chat, and generate behind render_chat")


@check(
    "chat.special-text",
    "A message that spells special tokens MUST be read as plain text",
    Capability.CHAT,
    Capability.TOKENIZING,
)
def users_cannot_spell_special_tokens(subject: Subject) -> None:
    rendered = _render(subject, _HELLO)
    if rendered is None:
        return
    encode = tokenizing(subject).encode
    harmless = encode(rendered)
    # As a plain string, the same text is what a user might type.
    must(bool(harmless), f"encode() has no ids for the prompt {rendered!r}")
    special = set(harmless) - set(encode(str.__str__(rendered)))
    nested = encode(tokenizing(subject).render_chat([Message("user", str.__str__(rendered))]))
    grown = [token for token in special if nested.count(token) > harmless.count(token)]
    must(
        not grown,
        f"a message that spells the template itself brought the special tokens {grown} into "
        f"the prompt again: {nested}",
    )


def _render(subject: Subject, turns: tuple[Message, ...]) -> str | None:
    """The prompt; None where the model's template refuses, which it may."""
    try:
        return tokenizing(subject).render_chat(turns)
    except ChatTemplateError:
        return None


def _chat(subject: Subject, turns: tuple[Message, ...] | list[Message]) -> Answer | None:
    speaks(subject, Capability.CHAT)
    try:
        return read(subject.model.chat(turns, max_tokens=6, **evidence(subject)))
    except ChatTemplateError:
        return None
