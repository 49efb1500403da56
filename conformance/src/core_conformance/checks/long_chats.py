"""Checks of long conversations: no turn is lost, however many there are, or however long."""

from __future__ import annotations

from core.errors import ChatTemplateError
from core.protocols import Capability
from core.types import Message
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import Answer, evidence, generate, read, speaks, tokenizing
from core_conformance.checking.budget import within
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import same_rows
from core_conformance.checking.sizes import words
from core_conformance.checking.subject import Subject

_TURNS = (5, 41, 1, 9, 17, 33, 3)  # messages: the user has the first and the last word
_WORDS = 60  # in a message that stands alone
_SOME = 0.5  # of the passes for one check
_COUNT = 4  # tokens
_NO_ROOM = "no conversation of three messages fits into the model's context, or its template"


@check(
    "chat.long",
    "chat MUST read every turn of a long conversation, the first one too",
    Capability.CHAT,
    Capability.TOKENIZING,
    broad=True,
)
def long_conversations(subject: Subject) -> None:
    speaks(subject, Capability.CHAT)
    fitting = [count for count in _TURNS if _fits(subject, count)]
    testable(bool(fitting), _NO_ROOM)
    answers = []
    for count in within(subject, fitting, lambda count: count / 2, "messages", _SOME):
        turns = _conversation(count)
        prompt = tokenizing(subject).render_chat(turns)
        _holds(prompt, turns)
        reply = read(subject.model.chat(turns, max_tokens=_COUNT, **evidence(subject)))
        answers.append(reply)
        if subject.declares(Capability.GENERATE):
            wanted = generate(subject, prompt, _COUNT)
            what = f"chat of {count} messages, and generate after render_chat"
            same_rows(subject, [(Answer(wanted.tokens, wanted.finish_reason, prompt), reply)], what)
    goes_on(subject, [answer.tokens for answer in answers])


def _conversation(count: int) -> list[Message]:
    """Return ``count`` messages, each with a different word, or one with many words."""
    texts = [f"I say {word}." for word in words(count)]
    if count == 1:
        texts = [" ".join(words(_WORDS))]
    return [
        Message("assistant", text) if place % 2 else Message("user", text)
        for place, text in enumerate(texts)
    ]


def _fits(subject: Subject, count: int) -> bool:
    try:
        prompt = tokenizing(subject).render_chat(_conversation(count))
    except ChatTemplateError:
        return False  # as a template may, of many messages
    ids = tokenizing(subject).encode(prompt)
    return len(ids) + _COUNT <= subject.model.info.context_length


def _holds(prompt: str, turns: list[Message]) -> None:
    place = 0
    for number, message in enumerate(turns):
        start = prompt.find(message.content, place)
        must(
            start >= 0,
            f"of {len(turns)} messages, number {number}, {message.content!r}, is not in the rest "
            f"of the prompt: {prompt[place:]!r:.200}",
        )
        place = start + len(message.content)
