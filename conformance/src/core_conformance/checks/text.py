"""Checks of text: whole characters, prompts of any Unicode text, and the tokenizer's methods."""

from __future__ import annotations

import itertools

from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import Answer, generate, is_id, tokenizing
from core_conformance.checking.check import must
from core_conformance.checking.drawing import draw, drawing
from core_conformance.checking.registry import check
from core_conformance.checking.subject import Subject

_BROKEN = "\ufffd"
_MANY_BYTES = ("emoji", "Japanese", "Cyrillic")  # characters of four, three and two bytes
_LENGTH = 10
_SPACED = (
    "Hello , world ! It 's fine . Is it ? We do n't know , they 've said so ; I 'm not .",
    "one  two   three    four",
    "first\n\n second\n\n\nthird \n fourth",
    '( a ) [ b ] { c } " d " : e / f',
)
_FORMS = (Capability.GENERATE, Capability.SUBMITTING, Capability.BATCH_GENERATE)


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
        prompt = ask.ODD[name]
        answers.append(generate(subject, prompt, _LENGTH, **options))
        _is_decoded(subject, prompt, answers[-1])
    goes_on(subject, [answer.tokens for answer in answers])


@check(
    "text.unicode",
    "A token's text MUST be valid Unicode, whole at every border of the stream",
    Capability.GENERATE,
)
def text_is_unicode(subject: Subject) -> None:
    answers = [generate(subject, ask.ODD[name], _LENGTH).tokens for name in _MANY_BYTES]
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
    for name, prompt in ask.ODD.items():
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
    """See that a stream's texts join to its ids decoded, alone or behind the prompt.

    Some tokenizers drop a space in front of a text. Invalid bytes, in the middle too, may be shown
    as one mark or as several, and the end may have been cut inside a character.
    """
    decode, encode = tokenizing(subject).decode, tokenizing(subject).encode
    joined, alone = answer.text.rstrip(_BROKEN), decode(answer.ids).rstrip(_BROKEN)
    behind = decode([*encode(prompt), *answer.ids]).rstrip(_BROKEN)

    # With a character broken in the middle, nothing can be compared.
    if _BROKEN in alone:
        return

    must(
        joined.lstrip(" ") == alone.lstrip(" ") or behind == prompt + joined,
        f"the stream's texts join to {joined!r}, and decode() of its ids gives {alone!r}: a "
        "character whose bytes lie in several tokens belongs, whole, to the last of them",
    )


@check(
    "tokenizing.ids",
    "encode MUST return a list of int ids below vocab_size, the same for the same text",
    Capability.TOKENIZING,
)
def ids_are_in_range(subject: Subject) -> None:
    size, encode = subject.model.info.vocab_size, tokenizing(subject).encode
    for text in (*ask.PLAIN, *ask.ODD.values()):
        ids = encode(text)
        must(
            _is_list_of_ids(ids, size),
            f"encode({text!r}) is {ids!r:.120}: a list of ints from 0 to {size - 1} was expected",
        )
        must(encode(text) == ids, f"encode({text!r}) gave two different lists")


@check(
    "tokenizing.round-trip",
    "decode(encode(text)) MUST give plain text back, special tokens left out",
    Capability.TOKENIZING,
)
def plain_text_comes_back(subject: Subject) -> None:
    model = tokenizing(subject)
    for text in (*ask.PLAIN, ask.LONG):
        back = model.decode(model.encode(text))
        # Some tokenizers put a space in front of every text, and some drop it again.
        must(back.lstrip(" ") == text, f"decode(encode({text!r})) is {back!r}")


@check(
    "tokenizing.stable",
    "What decode gives back MUST itself go through encode and decode unchanged, in any script",
    Capability.TOKENIZING,
)
def decoded_text_is_stable(subject: Subject) -> None:
    model = tokenizing(subject)
    for name, text in ask.ODD.items():
        once = model.decode(model.encode(text))
        again = model.decode(model.encode(once)) if once else once
        must(bool(once), f"{name}: of {text!r} nothing came back")
        must(again == once, f"{name}: {text!r} came back as {once!r}, and that as {again!r}")
    must(model.decode([]) == "", f"decode([]) is {model.decode([])!r}")


@check(
    "tokenizing.spacing",
    "decode MUST keep white space as it was encoded: in front of punctuation, in contractions, "
    "several blanks and lines",
    Capability.TOKENIZING,
)
def white_space_is_kept(subject: Subject) -> None:
    model = tokenizing(subject)
    for text in _SPACED:
        ids = model.encode(text)
        must(bool(ids), f"encode() has no ids for {text!r}")
        back = model.decode(ids)
        # What the tokenizer itself makes one is encoded alike.
        must(
            back.lstrip(" ") == text.lstrip(" ") or model.encode(back) == ids,
            f"decode(encode({text!r})) is {back!r}, and that is encoded otherwise",
        )


@check(
    "text.forms",
    "The texts of tokens MUST join to what decode makes of the ids, in every form of generation",
    (Capability.GENERATE, Capability.BATCH_GENERATE),
    Capability.TOKENIZING,
    broad=True,
)
def every_form_gives_the_text(subject: Subject) -> None:
    names = [name for name in drawing(subject) if name in _FORMS]
    answers = [
        (prompt, answer)
        for name in names
        for options in _ways(subject)
        for prompt, answer in zip(
            _SPACED, draw(subject, name, _SPACED, _LENGTH, **options), strict=True
        )
    ]
    for prompt, answer in answers:
        _is_decoded(subject, prompt, answer)
    goes_on(subject, [answer.ids for _, answer in answers], names[0])


def _is_list_of_ids(found: object, size: int) -> bool:
    return isinstance(found, list) and bool(found) and all(is_id(i, size) for i in found)
