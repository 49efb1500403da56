"""Text: characters stay whole, and prompts may hold whatever Unicode has."""

from __future__ import annotations

import itertools

from core.capability import Capability
from core_conformance import prompts
from core_conformance.answers import Answer, generate, tokenizing
from core_conformance.model import must
from core_conformance.preconditions import goes_on
from core_conformance.registry import check
from core_conformance.subject import Subject

_BROKEN = "\ufffd"
_MANY_BYTES = ("emoji", "Japanese", "Cyrillic")  # characters of four, three and two bytes
_LENGTH = 10


@check(
    "text.whole-characters",
    "No token's text MUST end inside a character: joined, the texts are what decode makes of the "
    "ids",
    Capability.GENERATE,
    Capability.TOKENIZING,
)
def characters_are_whole(subject: Subject) -> None:
    answers = []
    for name, options in itertools.product(_MANY_BYTES, _ways(subject)):
        prompt = prompts.ODD[name]
        answers.append(generate(subject, prompt, _LENGTH, **options))
        _is_decoded(subject, prompt, answers[-1])
    goes_on(subject, [answer.tokens for answer in answers])


@check(
    "text.unicode",
    "A token's text MUST be valid Unicode, whole at every border of the stream",
    Capability.GENERATE,
)
def text_is_unicode(subject: Subject) -> None:
    answers = [generate(subject, prompts.ODD[name], _LENGTH).tokens for name in _MANY_BYTES]
    for token in itertools.chain(*answers):
        try:
            token.text.encode()
        except UnicodeEncodeError as error:
            must(False, f"the text of {token!r} is not Unicode: {error.reason}")
    goes_on(subject, answers)


@check(
    "text.odd-prompts",
    "Any prompt with at least one character MUST be continued: white space, emoji, any script",
    Capability.GENERATE,
)
def odd_prompts(subject: Subject) -> None:
    for name, prompt in prompts.ODD.items():
        answer = generate(subject, prompt, 2)
        must(
            answer.finish_reason in ("stop", "length"),
            f"a prompt with {name} ({prompt!r}) ended with {answer.finish_reason!r}",
        )


def _ways(subject: Subject) -> list[dict[str, float | int]]:
    if not subject.declares(Capability.SEED):
        return [{}]
    return [{}, {"temperature": 1.0, "seed": 3}]


def _is_decoded(subject: Subject, prompt: str, answer: Answer) -> None:
    """The texts joined are the ids decoded, alone or behind the prompt.

    Some tokenizers drop a space in front of a text. What is invalid, in the middle too, may be
    shown as one mark or as several, and the end may have been cut inside a character.
    """
    decode, encode = tokenizing(subject).decode, tokenizing(subject).encode
    joined, alone = answer.text.rstrip(_BROKEN), decode(answer.ids).rstrip(_BROKEN)
    behind = decode([*encode(prompt), *answer.ids]).rstrip(_BROKEN)
    if _BROKEN in alone:
        return
    must(
        joined.lstrip(" ") == alone.lstrip(" ") or behind == prompt + joined,
        f"the stream's texts join to {joined!r}, and decode() of its ids gives {alone!r}: a "
        "character whose bytes lie in several tokens belongs, whole, to the last of them",
    )
