"""Checks of chat: generate after the model's own template, in which users are plain text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from core.errors import ChatTemplateError, CoreError, InvalidOptionError
from core.protocols import Capability, TextModel
from core.types import Conversation, Message
from core_conformance.checking import ask
from core_conformance.checking.ask import (
    Answer,
    evidence,
    generate,
    read,
    speaks,
    tokenizing,
)
from core_conformance.checking.calls import ending
from core_conformance.checking.check import check, must, testable, well_formed
from core_conformance.checking.compare import same_speech
from core_conformance.checking.sizes import must_be_too_long, overlong, short_context
from core_conformance.checking.subject import Subject

_HELLO = (Message("user", "Hello"),)
_TURNS = (Message("user", "Hello"), Message("assistant", "Hi!"), Message("user", "How are you?"))
_NO_TURNS = (
    "the template refuses a user's message, an answer and a question after it: use a model whose "
    "template accepts these"
)
_NO_SPECIAL = "the template has no special tokens: use a model whose template has some"
_OTHERWISE = ", or so it was meant to be"
_SYSTEM = (Message("system", "Answer in one word."), *_HELLO)

_WRONG: tuple[tuple[dict[str, object], type[Exception]], ...] = (
    ({"role": "user"}, TypeError),
    ({"role": "user", "text": "Hello"}, TypeError),
    ({"role": "user", "content": "Hello", "mood": "cheerful"}, TypeError),
    ({"role": "user", "content": ["Hello"]}, TypeError),
    ({"role": "narrator", "content": "Hello"}, InvalidOptionError),
)


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
    rendered = ask.rendered(subject, _SYSTEM)
    answer = _chat(subject, _SYSTEM)
    must(
        (rendered is None) == (answer is None),
        "one of chat and render_chat accepts a system message, the other raises ChatTemplateError",
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
    rendered = _rendered(subject, _TURNS)
    place = 0
    for message in _TURNS:
        start = rendered.find(message.content, place)
        must(
            start >= 0,
            f"{message!r} is not in the rest of the prompt {rendered[place:]!r:.300}",
        )
        place = start + len(message.content)


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
        prompt, answer = ask.rendered(subject, turns), _chat(subject, turns)
        if prompt is not None and answer is not None:
            pairs.append((answer, generate(subject, prompt, 6)))
    same_speech(subject, pairs, "chat, and generate after render_chat")


@check(
    "chat.special-text",
    "A message that spells special tokens MUST be read as plain text",
    Capability.CHAT,
    Capability.TOKENIZING,
)
def users_cannot_spell_special_tokens(subject: Subject) -> None:
    rendered = _rendered(subject, _HELLO)
    encode = tokenizing(subject).encode
    harmless = encode(rendered)
    # As a plain string, the same text is what a user might type.
    well_formed(bool(harmless), f"encode() has no ids for the prompt {rendered!r}")
    special = set(harmless) - set(encode(str.__str__(rendered))) | _textless(subject, harmless)
    testable(bool(special), _NO_SPECIAL)

    # That text as a user's message: no special token may come more often than in the template.
    nested = encode(tokenizing(subject).render_chat([Message("user", str.__str__(rendered))]))
    grown = [token for token in special if nested.count(token) > harmless.count(token)]
    must(
        not grown,
        f"a message that spells the template itself brought the special tokens {grown} into "
        f"the prompt again: {nested}",
    )


@check(
    "chat.special-plain",
    "A plain prompt that spells the template's special tokens MUST be read as plain text",
    Capability.CHAT,
    Capability.TOKENIZING,
)
def plain_prompts_cannot_spell_special_tokens(subject: Subject) -> None:
    rendered, encode = _rendered(subject, _HELLO), tokenizing(subject).encode
    harmless, plain, usual = encode(rendered), encode(str.__str__(rendered)), encode("Hello")
    well_formed(bool(harmless), f"encode() has no ids for the prompt {rendered!r}")
    special = _textless(subject, harmless)
    testable(bool(special), _NO_SPECIAL)
    spelled = [token for token in special if plain.count(token) > usual.count(token)]
    must(
        not spelled,
        f"the plain text {str.__str__(rendered)!r} was read with the special tokens {spelled}: "
        "only a RenderedPrompt has them",
    )


@check(
    "chat.second-turn",
    "A later turn MUST be answered as by a model that never heard the turns before it",
    Capability.CHAT,
)
def second_turns_are_whole_conversations(subject: Subject) -> None:
    first = _chat(subject, _HELLO)
    testable(first is not None, _NO_TURNS)
    assert first is not None

    # The answer as it was given, as the user cut and changed it, and another beginning.
    reply = first.text.strip() or "Hi!"
    answers = [(_HELLO[0], text) for text in (reply, reply[: len(reply) // 2] + _OTHERWISE)]
    answers.append((Message("user", "Hello!"), reply))
    conversations = [
        (question, Message("assistant", text), _TURNS[-1]) for question, text in answers
    ]

    stream = subject.model.chat(_HELLO, max_tokens=6)  # which the user breaks off
    next(stream, None)
    stream.close()
    seen = [_chat(subject, turns) for turns in conversations]
    with subject.loaded() as fresh:
        wanted = [_chat(subject, turns, fresh) for turns in conversations[::-1]][::-1]

    pairs = [(one, other) for one, other in zip(wanted, seen, strict=True) if one and other]
    testable(bool(pairs), _NO_TURNS)
    same_speech(subject, pairs, "a later turn of a new load, and after the turns before it")


@check(
    "chat.mappings",
    'chat MUST take {"role": ..., "content": ...} for a message, and say which one is wrong',
    Capability.CHAT,
)
def mappings_are_messages(subject: Subject) -> None:
    given = [{"role": turn.role, "content": turn.content} for turn in _TURNS]
    expected, seen = _chat(subject, _TURNS), _chat(subject, given)
    must(
        (expected is None) == (seen is None),
        f"chat accepts one of {_TURNS} and {given}, but raises ChatTemplateError for the other",
    )
    if expected is not None and seen is not None:
        same_speech(subject, [(expected, seen)], "chat with core.Messages, and with mappings")

    # The error of a value that is not a message must name its index.
    for wrong, kind in _WRONG:
        error = ending(partial(subject.model.chat, [_HELLO[0], wrong], max_tokens=1)).error
        must(
            isinstance(error, kind) and "1" in str(error),
            f"chat of a conversation whose message 1 is {wrong!r} gave {error!r}: expected a "
            f"{kind.__name__} that names the index",
        )


@check(
    "chat.too-long",
    "A conversation longer than the context MUST raise PromptTooLongError, whole as it is; the "
    "next one is answered",
    Capability.CHAT,
    broad=True,
)
def long_conversations_are_refused(subject: Subject) -> None:
    with short_context(subject) as model:
        before = _chat(subject, _HELLO, model)
        long = overlong(model)
        half = len(long) // 2
        for turns in (
            [Message("user", long)],
            [Message("user", long[:half]), Message("assistant", long[half:]), _TURNS[-1]],
            [Message("user", "Hello"), Message("assistant", long), _TURNS[-1]],
        ):
            error = ending(partial(model.chat, turns, max_tokens=1)).error
            if not isinstance(error, ChatTemplateError):
                must_be_too_long(model, error, _length(subject, turns))
        after = _chat(subject, _HELLO, model)
    if before is not None and after is not None:
        same_speech(subject, [(before, after)], "chat before, and after what was too long")


@check(
    "chat.empty",
    "A conversation without a message MUST be refused; one whose message is empty is answered, or "
    "raises a CoreError",
    Capability.CHAT,
)
def empty_conversations(subject: Subject) -> None:
    error = ending(partial(subject.model.chat, [], max_tokens=1)).error
    must(
        isinstance(error, CoreError | TypeError | ValueError),
        f"chat of no messages gave {error!r}: expected a ChatTemplateError",
    )
    for content in ("", " ", "\n"):
        end = ending(partial(subject.model.chat, [Message("user", content)], max_tokens=1))
        must(
            isinstance(end.error, CoreError) or end.reason in ("stop", "length"),
            f"chat of the message {content!r} ended with {end.error!r} and {end.reason!r}",
        )


def _length(subject: Subject, turns: Conversation) -> int | None:
    if not subject.declares(Capability.TOKENIZING):
        return None
    return len(tokenizing(subject).encode(tokenizing(subject).render_chat(turns)))


def _rendered(subject: Subject, turns: tuple[Message, ...]) -> str:
    """Render a prompt of turns that nearly every template takes."""
    rendered = ask.rendered(subject, turns)
    testable(rendered is not None, _NO_TURNS)
    assert rendered is not None
    return rendered


def _textless(subject: Subject, ids: Sequence[int]) -> set[int]:
    """Return the ids that leave no text, as special tokens do, not even between two words."""
    decode = tokenizing(subject).decode
    words = tokenizing(subject).encode(f"{_TURNS[-1].content}\n")
    between = {token: decode([*words, token, *words]) for token in set(ids) - set(words)}
    return {token for token, text in between.items() if text == decode([*words, *words])}


def _chat(subject: Subject, turns: Conversation, model: TextModel | None = None) -> Answer | None:
    speaks(subject, Capability.CHAT)
    try:
        return read((model or subject.model).chat(turns, max_tokens=6, **evidence(subject)))
    except ChatTemplateError:
        return None
