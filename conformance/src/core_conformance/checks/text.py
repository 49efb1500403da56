"""Checks of text: whole characters, prompts of any Unicode text, and the tokenizer's methods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, product
from typing import Any

from core.errors import UnsupportedOptionError
from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import CONTINUING, Answer, generate, is_id, seeds, tokenizing
from core_conformance.checking.budget import passes
from core_conformance.checking.check import (
    check,
    count_compared,
    leave_out,
    must,
    testable,
    well_formed,
)
from core_conformance.checking.draws.operations import draw, drawing
from core_conformance.checking.subject import Subject

_BROKEN = "\ufffd"
_MANY_BYTES = ("emoji", "Japanese", "Cyrillic")  # characters of four, three and two bytes
_LENGTH = 10
# By their size in bytes, characters for which few vocabularies have a token.
_RARE = {4: "🎉🥳𓀀𝒜", 3: "ᚠꙮ▟ⵣ", 2: "ߐԱϬʘΩãа"}
_MORE = (" and so on", "\n", ", or else", "漢")
_TRIES = 100
_SEEN: dict[str, Any] = {"repeat_penalty": 0.01}  # likelier is what the prompt has
_ANY_SEEN: dict[str, Any] = {"temperature": 1e4, "top_k": 4} | _SEEN
_NO_CHARACTERS = (
    "no answer has a character whose bytes span several tokens: use a model that continues "
    "emoji or Japanese text in the same script"
)
_ONLY_ASCII = (
    "after emoji, Japanese and Cyrillic the model produces only ASCII: use one that continues them "
    "in their script"
)
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
    met, answers = set[str](), []
    for name, options in product(_MANY_BYTES, _ways(subject)):
        prompt = ask.ODD[name]
        answers.append(generate(subject, prompt, _LENGTH, **options))
        met |= _is_decoded(subject, prompt, answers[-1])

    # What did not come by itself is sought: a character of each size.
    for size, rare in _RARE.items():
        if size not in map(_size, met):
            met |= _sought(subject, size, rare)
        if size not in map(_size, met):
            leave_out(f"characters of {size} bytes in several tokens, for none came")
    if not met:
        goes_on(subject, [answer.tokens for answer in answers])
        testable(_all_are_tokens(subject), _NO_CHARACTERS)


@check(
    "text.unicode",
    "A token's text MUST be valid Unicode, whole at every border of the stream",
    Capability.GENERATE,
)
def text_is_unicode(subject: Subject) -> None:
    answers = []
    for name, options in product(_MANY_BYTES, ({}, _SEEN)):
        with suppress(UnsupportedOptionError):
            answers.append(generate(subject, ask.ODD[name], _LENGTH, **options).tokens)
    for token in chain(*answers):
        try:
            token.text.encode()
        except UnicodeEncodeError as error:
            must(False, f"the text of {token!r} is not Unicode: {error.reason}")
        if not token.text.isascii():  # which no fault would change
            count_compared()
    goes_on(subject, answers)
    testable(not all(token.text.isascii() for token in chain(*answers)), _ONLY_ASCII)


def _ways(subject: Subject) -> list[dict[str, float | int]]:
    if not subject.declares(Capability.SEED):
        return [{}]
    return [{}, {"temperature": 1.0, "seed": 3}]


def _sought(subject: Subject, size: int, rare: str) -> set[str]:
    """Return characters of this size that came in several tokens, in answers that repeat them."""
    tried = 0
    for prompt, length, options in _asked(subject, rare):
        tried += length
        if tried > passes(subject):
            break
        with suppress(UnsupportedOptionError):
            met = _is_decoded(subject, prompt, generate(subject, prompt, length, **options))
            if size in map(_size, met):
                return met
    return set()


def _asked(subject: Subject, rare: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield prompts, lengths and options: first long continuations, then draws of one character."""
    encode, repeating = tokenizing(subject).encode, []
    for character in rare:
        tokens = len(encode(character * 6)) - len(encode(character * 5))
        if tokens > 1:
            repeating.append((character * 6, tokens))
    for (prompt, tokens), options in product(repeating, ({}, _SEEN)):
        yield prompt, 2 * tokens, options
    for seed, (prompt, tokens) in product(seeds(subject, _TRIES), repeating):
        yield prompt, tokens, _ANY_SEEN | seed


def _all_are_tokens(subject: Subject) -> bool:
    """Return whether even rare characters have a token of their own.

    Then none lies in several tokens.
    """
    model = tokenizing(subject)
    return all(
        model.decode(model.encode(character)[-1:]) == character
        for character in chain(*_RARE.values())
    )


def _size(character: str) -> int:
    return len(character.encode())


def _is_decoded(subject: Subject, prompt: str, answer: Answer) -> set[str]:
    """Check that a stream's texts are its ids decoded, except for broken characters.

    Returns the characters of several bytes that were compared, and that no token has for itself.
    Some tokenizers drop a space before a text; some break all bytes next to an invalid one.
    """
    decode, encode = tokenizing(subject).decode, tokenizing(subject).encode
    texts, places = [token.text for token in answer.tokens], range(1, len(answer.tokens) + 1)
    joined = {end: "".join(texts[:end]) for end in places}
    alone = {end: decode(answer.ids[:end]) for end in places}

    # The last places at which the one and the other are whole.
    whole = [end for end in places if _BROKEN not in alone[end]][-1:]
    shown = [end for end in places if _BROKEN not in joined[end] and texts[end - 1]][-1:]
    for end in {*whole, *shown}:
        rest = decode([*encode(prompt), *answer.ids[:end]]).rstrip(_BROKEN)
        must(
            joined[end].lstrip(" ") == alone[end].rstrip(_BROKEN).lstrip(" ")
            or rest == prompt + joined[end],
            f"the stream's texts join to {joined[end]!r}, and decode() of its ids gives "
            f"{alone[end]!r}: a character whose bytes lie in several tokens belongs, whole, to the "
            "last of them",
        )

    own = {character for id in answer.ids for character in decode([id])}
    expected = {character for end in whole for character in alone[end]}
    return {character for character in expected - own if not character.isascii()}


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
    CONTINUING,
)
def plain_text_comes_back(subject: Subject) -> None:
    model = tokenizing(subject)
    for text in (*ask.PLAIN, ask.LONG):
        back = model.decode(model.encode(text))
        # Some tokenizers put a space before every text, and some drop it again.
        must(back.lstrip(" ") == text, f"decode(encode({text!r})) is {back!r}")


@check(
    "tokenizing.open-ended",
    "encode MUST put nothing after a text: a longer text begins with the ids of a shorter one",
    Capability.TOKENIZING,
    CONTINUING,
)
def texts_go_on(subject: Subject) -> None:
    encode = tokenizing(subject).encode
    pairs = [(encode(text), encode(text + more)) for text in ask.PLAIN for more in _MORE]
    # Many tokenizers join the end of some texts with what follows, and none with all of this.
    must(
        any(longer[: len(ids)] == ids and len(longer) > len(ids) for ids, longer in pairs),
        f"none of {len(pairs)} longer texts begins with the ids of the shorter one: {pairs[0][1]} "
        f"and {pairs[0][0]}; generation continues from them, so encode must append nothing",
    )


@check(
    "tokenizing.stable",
    "The text that decode gives MUST be whole characters, and itself go through encode and decode "
    "unchanged, in any script",
    Capability.TOKENIZING,
    CONTINUING,
)
def decoded_text_is_stable(subject: Subject) -> None:
    model, whole = tokenizing(subject), list[bool]()
    for name, text in ask.ODD.items():
        once = model.decode(model.encode(text))
        again = model.decode(model.encode(once)) if once else once
        well_formed(bool(once), f"{name}: of {text!r} nothing came back")
        must(again == once, f"{name}: {text!r} came back as {once!r}, and that as {again!r}")
        if _tells_apart(subject, text):
            whole.append(_BROKEN not in once)
    must(any(whole or [True]), f"decode shows {_BROKEN!r} for characters that encode distinguishes")
    must(model.decode([]) == "", f"decode([]) is {model.decode([])!r}")


@check(
    "tokenizing.nul",
    "A NUL that encode keeps MUST come back from decode, with what stands after it",
    Capability.TOKENIZING,
)
def nul_comes_back(subject: Subject) -> None:
    model = tokenizing(subject)
    text, without = "one\0two", "onetwo"
    ids, back = model.encode(text), model.decode(model.encode(text))
    must(bool(ids), f"encode({text!r}) gave no ids")
    drops_it = ids in (model.encode(without), model.encode("one"))
    must(drops_it or back.lstrip(" ") == text, f"decode(encode({text!r})) is {back!r}")


def _tells_apart(subject: Subject, text: str) -> bool:
    """Return whether encode has other ids for each character beyond ASCII.

    Then it has their bytes.
    """
    characters = {character for character in text if not character.isascii()}
    encodings = {tuple(tokenizing(subject).encode(character)) for character in characters}
    return len(encodings) == len(characters) > 1


@check(
    "tokenizing.spacing",
    "decode MUST keep white space as it was encoded: before punctuation, in contractions, "
    "several blanks and lines",
    Capability.TOKENIZING,
    CONTINUING,
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


def _is_list_of_ids(value: object, size: int) -> bool:
    return isinstance(value, list) and bool(value) and all(is_id(i, size) for i in value)
