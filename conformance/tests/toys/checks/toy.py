"""Checks for the framework's own tests."""

from __future__ import annotations

from core.protocols import PROTOCOL_VERSION, Capability
from core_conformance.checking.check import check, must
from core_conformance.checking.subject import Subject


@check("toy.first", "The first word MUST come back.", Capability.GENERATE)
def first(subject: Subject) -> None:
    _comes_back(subject, "first")


@check("toy.labels", "Labels MUST be scored.", Capability.CLASSIFY, Capability.LABELS)
def labels(subject: Subject) -> None:
    _comes_back(subject, "labels")


@check("toy.second", "The second word MUST come back.", Capability.GENERATE)
def second(subject: Subject) -> None:
    _comes_back(subject, "second")


@check("toy.third", "The third word MUST come back.", Capability.GENERATE)
def third(subject: Subject) -> None:
    _comes_back(subject, "third")


@check("toy.tomorrow", "The next version's word MUST come back.", since=PROTOCOL_VERSION + 1)
def tomorrow(subject: Subject) -> None:
    _comes_back(subject, "tomorrow")


def _comes_back(subject: Subject, word: str) -> None:
    output = "".join(token.text for token in subject.model.generate(word))
    must(output == word, f"for the prompt {word!r} came {output!r}; say what you are told")
