"""Checks of what a caller tells a chat template: its variables, and a message to be continued."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from core.errors import ChatTemplateError, InvalidOptionError
from core.protocols import Capability, TextModel
from core.types import Message
from core_conformance.checking.ask import evidence, generate, read, speaks, tokenizing
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import same_speech
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import run, same_rows, undisturbed
from core_conformance.checking.ways.table import WAYS, Row, Way, ways

_HELLO = (Message("user", "Hello"),)
_REPEATED = (("Is it sunny today?", "sunny"), ("Sunny", "Sunny"), ("One. Two.", "One."))
_SAID = ("The weather is", " one, two \n", "")
_UNKNOWN = "core_no_template_reads_this"
_ANSWERS_ONLY = (
    "the template refuses every conversation that ends with the assistant's message, or does not "
    "copy that message unchanged: use a model whose template does"
)


@check(
    "chat.final-message",
    "chat with continue_final_message MUST be generate after render_chat with it",
    Capability.CHAT,
    Capability.CHAT_TEMPLATE,
    Capability.GENERATE,
    Capability.TOKENIZING,
    since=2,
)
def continued_messages_are_generated(subject: Subject) -> None:
    speaks(subject, Capability.CHAT)
    pairs = []
    for begun, prompt in _continued(subject):
        options = {"continue_final_message": True, **evidence(subject)}
        answer = read(subject.model.chat(_turns(begun), max_tokens=6, **options))
        pairs.append((answer, generate(subject, prompt, 6)))
    same_speech(subject, pairs, "chat that continues a message, and generate after render_chat")


@check(
    "chat.final-message-end",
    "With continue_final_message the prompt MUST end with the message's content, as it is",
    Capability.CHAT,
    Capability.CHAT_TEMPLATE,
    Capability.TOKENIZING,
    since=2,
)
def continued_messages_end_the_prompt(subject: Subject) -> None:
    for begun, prompt in _continued(subject):
        must(
            prompt.endswith(begun),
            f"the prompt {prompt!r:.300} that continues {begun!r} does not end with it",
        )


@check(
    "chat.final-message-twice",
    "With continue_final_message the prompt MUST hold the whole conversation, also where the "
    "final message's words come before it",
    Capability.CHAT,
    Capability.CHAT_TEMPLATE,
    Capability.TOKENIZING,
    since=2,
)
def repeated_messages_are_continued(subject: Subject) -> None:
    compared = False
    for question, begun in _REPEATED:
        turns = (Message("user", question), Message("assistant", begun))
        try:
            whole = tokenizing(subject).render_chat(turns)
            prompt = tokenizing(subject).render_chat(turns, continue_final_message=True)
        except ChatTemplateError:
            continue
        if question not in whole:
            continue
        compared = True
        must(
            prompt.endswith(begun) and begun in prompt[prompt.find(question) + len(question) :],
            f"the prompt {prompt!r:.300} that continues {begun!r} after the question {question!r} "
            "does not hold both",
        )
    testable(compared, _ANSWERS_ONLY)


@check(
    "chat.final-message-of-user",
    "continue_final_message MUST raise ChatTemplateError where the last message is not the "
    "assistant's",
    Capability.CHAT,
    Capability.CHAT_TEMPLATE,
    since=2,
)
def messages_of_users_are_not_continued(subject: Subject) -> None:
    answered = (*_turns("Hi!"), *_HELLO)
    for turns in (_HELLO, answered, (Message("system", "Hello"),)):
        for call in _calls(subject, turns, continue_final_message=True):
            error = _error(call)
            must(
                isinstance(error, ChatTemplateError),
                f"continue_final_message=True of a conversation that ends with the "
                f"{turns[-1].role}'s message gave {error!r}",
            )


@check(
    "chat.unknown-variable",
    "A variable that the chat template never reads MUST be refused by its name",
    Capability.CHAT,
    Capability.CHAT_TEMPLATE,
    since=2,
)
def unknown_variables_are_refused(subject: Subject) -> None:
    for call in _calls(subject, _HELLO, chat_template_kwargs={_UNKNOWN: True}):
        error = _error(call)
        must(
            isinstance(error, InvalidOptionError) and _UNKNOWN in str(error),
            f"chat_template_kwargs={{{_UNKNOWN!r}: True}} gave {error!r}: expected an "
            "InvalidOptionError that names the variable",
        )


@check(
    "chat.no-template-options",
    "chat_template_kwargs that are None or empty, and continue_final_message=False, MUST change "
    "nothing",
    Capability.CHAT,
    since=2,
)
def neutral_options_change_nothing(subject: Subject) -> None:
    speaks(subject, Capability.CHAT)
    chat, options = subject.model.chat, evidence(subject)
    plain = read(chat(_HELLO, max_tokens=6, **options))
    pairs = []
    nothing: tuple[dict[str, object] | None, ...] = (None, {})
    for neutral in nothing:
        given = {"chat_template_kwargs": neutral, "continue_final_message": False, **options}
        pairs.append((plain, read(chat(_HELLO, max_tokens=6, **given))))
    same_speech(subject, pairs, "chat, and chat whose options for the template ask for nothing")


def _turns(begun: str) -> tuple[Message, ...]:
    return (*_HELLO, Message("assistant", begun))


def _continued(subject: Subject) -> list[tuple[str, str]]:
    """Return texts to continue, each with its prompt, if the template copies them."""
    prompts = []
    for begun in _SAID:
        try:
            prompt = tokenizing(subject).render_chat(_turns(begun), continue_final_message=True)
        except ChatTemplateError:
            continue
        prompts.append((begun, prompt))
    testable(bool(prompts), _ANSWERS_ONLY)
    return prompts


def _calls(
    subject: Subject, turns: tuple[Message, ...], **options: Any
) -> list[Callable[[], Iterable[object]]]:
    """Return calls on these messages: of chat, and of render_chat if it is declared."""
    calls: list[Callable[[], Iterable[object]]] = [
        partial(subject.model.chat, turns, max_tokens=1, **options)
    ]
    if subject.declares(Capability.TOKENIZING):
        calls.append(partial(tokenizing(subject).render_chat, turns, **options))
    return calls


def _error(call: Callable[[], Iterable[object]]) -> Exception | None:
    try:
        list(call())
    except Exception as error:  # noqa: BLE001 - the check looks at it
        return error
    return None


_TOKENS = 4
_UNRELATED = "Once upon a time"
_PLAIN_TEXT = (
    "the chat template's text has the same tokens as a plain string: use a model whose template "
    "has special tokens"
)
_ALIKE = "the model says the same after every prompt: use a model whose output depends on it"
_BOTH = "a rendered prompt and its text as a plain string"
_READING = tuple(name for name in WAYS if name not in (Capability.CHAT, Capability.HIDDEN_STATES))


@check(
    "chat.rendered-operations",
    "Every operation MUST read a rendered prompt with its special tokens, and the same text as a "
    "plain string without them, whichever came first",
    Capability.CHAT,
    Capability.TOKENIZING,
)
def rendered_prompts_stay_special(subject: Subject) -> None:
    rendered, plain = _texts(subject)
    different: dict[str, bool] = {}
    for way in ways(subject, *_READING):
        with subject.loaded() as one, subject.loaded() as other:
            forth = _asked(subject, one, way, (rendered, plain))
            back = _asked(subject, other, way, (plain, rendered))[::-1]
        same_rows(subject, forth, back, f"{way.name} of {_BOTH}, in two orders")
        differs = _details(forth[0]) != _details(forth[1])
        if not differs and not _depends(subject, way, forth[1]):
            continue  # a model that ends at once says that of every prompt
        if way.name is not Capability.CLASSIFY or subject.declares(Capability.LOGPROBS):
            different[way.name] = differs

    # A model without weights says the same after every prompt, through all of them.
    testable(any(different.values()), _ALIKE)
    alike = [name for name, differs in different.items() if not differs]
    must(
        not alike,
        f"{', '.join(alike)} give the same results for {_BOTH}: they read the same tokens",
    )


def _texts(subject: Subject) -> tuple[str, str]:
    """Return a rendered prompt, and its text as a plain string."""
    rendered = tokenizing(subject).render_chat(_HELLO)
    plain, encode = str.__str__(rendered), tokenizing(subject).encode
    testable(len(encode(rendered)) != len(encode(plain)), _PLAIN_TEXT)
    return rendered, plain


def _asked(subject: Subject, model: TextModel, way: Way, prompts: Sequence[str]) -> list[Row]:
    rows = [row for prompt in prompts for row in run(subject, way, model, [prompt], _TOKENS)]
    undisturbed(rows, f"{way.name} of {_BOTH}")
    return rows


def _depends(subject: Subject, way: Way, plain: Row) -> bool:
    """Return whether the way gives anything else for an unrelated prompt."""
    (other,) = run(subject, way, subject.model, [_UNRELATED], _TOKENS)
    return _details(other) != _details(plain)


def _details(row: Row) -> tuple[object, ...]:
    return (row.answer.ids, [token.logprob for token in row.answer.tokens], row.numbers)
