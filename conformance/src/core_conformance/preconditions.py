"""What a model has to have, or a check would say nothing about its backend.

One that is not met is `NotTestable`, which is no failure and earns no certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from weakref import WeakKeyDictionary

from core.capability import Capability
from core.errors import ChatTemplateError
from core.types import Message
from core_conformance.model import Check, testable
from core_conformance.speaking import SPEAKING, speaks, voice
from core_conformance.subject import Subject
from core_conformance.verdict import OPERATIONS

CONTEXT = 128
"""Tokens that a context has to hold: the longest prompt of any check, a byte a token, and more."""

_WITHOUT_PROMPTS = ("identity", "loading", "tokenizing")  # areas whose checks run no prompt
_SILENT = (
    "greedy, the model ends behind every prompt that was tried, so there is nothing to look at: "
    "take a model that goes on for a dozen tokens"
)
_NO_TEMPLATE = (
    "the model has no chat template (chat raises ChatTemplateError): take a model that has one"
)
_templates: WeakKeyDictionary[Subject, bool] = WeakKeyDictionary()


def ready(check: Check, subject: Subject) -> None:
    """Raise `NotTestable` for a model on which the check cannot tell anything."""
    if check.id.partition(".")[0] in _WITHOUT_PROMPTS:
        return
    length: object = subject.model.info.context_length  # what is no length is for loading.info
    small = isinstance(length, int) and 0 < length < CONTEXT
    testable(
        not small,
        f"the model's context holds {length} tokens, and the prompts of the suite need {CONTEXT}: "
        "take a model with a longer context, or load it with a larger context_len",
    )
    if _chats(check, subject):
        testable(has_template(subject), _NO_TEMPLATE)


def has_template(subject: Subject) -> bool:
    """Whether the model has a chat template; asked once for a subject.

    One that refuses a single message of a user is none.
    """
    if subject not in _templates:
        try:
            list(subject.model.chat([Message("user", "Hello")], max_tokens=1))
        except ChatTemplateError:
            _templates[subject] = False
        except Exception:  # noqa: BLE001 - whatever it is, it is for the checks to say
            _templates[subject] = True
        else:
            _templates[subject] = True
    return _templates[subject]


def usable(subject: Subject) -> list[Capability]:
    """The declared ones of `OPERATIONS` that work with this model: chat needs a template."""
    names = [name for name in OPERATIONS if subject.declares(name)]
    if Capability.CHAT in names and not has_template(subject):
        names.remove(Capability.CHAT)
        testable(bool(names), _NO_TEMPLATE)
    return names


def goes_on(
    subject: Subject, answers: Iterable[Sized], operation: Capability | None = None
) -> None:
    """Raise unless one of these sequences of greedy tokens has a token.

    `NotTestable` where the model ends at once; `Violation` where it is the backend that never
    gives a token, at a very high temperature neither. ``operation``: that of the streams.
    """
    if not any(len(answer) for answer in answers):
        streams = any(subject.declares(name) for name in SPEAKING)
        usual = voice(subject) if streams else Capability.BATCH_GENERATE
        speaks(subject, operation or usual)
        testable(False, _SILENT)


def _chats(check: Check, subject: Subject) -> bool:
    """Whether the check goes through chat."""
    by_chat = voice(subject) is Capability.CHAT
    return any(need == Capability.CHAT or (need == SPEAKING and by_chat) for need in check.needs)
