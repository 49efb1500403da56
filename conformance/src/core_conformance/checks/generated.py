"""Checks with generated inputs: whatever the text, its answer is what it is alone and anywhere.

No answer is known beforehand. Each is compared with that of a second load, run once and alone, or
with that of another operation of the same model.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, cast

from core.errors import CoreError
from core.extensions import BatchStreaming, ClassifyStreaming
from core.protocols import Capability
from core.types import BatchResult, Token
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import (
    CONTINUING,
    SPEAKING,
    Answer,
    evidence,
    is_id,
    speaks,
    voice,
)
from core_conformance.checking.check import check, must
from core_conformance.checking.generated import strategies
from core_conformance.checking.generated.lazily import st
from core_conformance.checking.generated.search import search
from core_conformance.checking.generated.world import (
    Options,
    Outcome,
    World,
    batch,
    classify,
    said,
    same_error,
)
from core_conformance.checking.recall import telling
from core_conformance.checking.subject import Subject
from core_conformance.checking.ties import parting

_BROKEN = "\ufffd"
_LENGTH = 6  # tokens


@check(
    "generated.texts",
    "Any text MUST be classified among any others as it is alone: whatever its characters",
    Capability.CLASSIFY,
    broad=True,
)
def any_texts(subject: Subject) -> None:
    search(subject, strategies.rows(), _classified_together, lambda rows: 2 * len(rows), most=30)


@check(
    "generated.batches",
    "Any prompts with any options MUST be continued in a batch as each is alone",
    Capability.BATCH_GENERATE,
    broad=True,
)
def any_batches(subject: Subject) -> None:
    speaks(subject, Capability.BATCH_GENERATE)
    inputs = st.tuples(strategies.rows(), st.integers(1, _LENGTH), strategies.sampling(subject))
    tokens = search(subject, inputs, _batched, _batch_cost, most=32)
    goes_on(subject, [range(tokens)], Capability.BATCH_GENERATE)


@check(
    "generated.answers",
    "Of any answer, max_tokens MUST give a beginning, and a stop string what stands before it",
    SPEAKING,
    broad=True,
)
def any_answers(subject: Subject) -> None:
    speaks(subject, voice(subject))
    inputs = st.tuples(
        strategies.texts(),
        st.integers(1, 2 * _LENGTH),
        strategies.sampling(subject),
        st.tuples(st.integers(0, 40), st.integers(1, 8)),
        st.sampled_from(("", "NFD", "NFC", "\u0301", "NFKC")),
    )
    tokens = search(subject, inputs, _answered, lambda case: 3 * case[1])
    goes_on(subject, [range(tokens)])


@check(
    "generated.tokens",
    "Any text MUST go through encode and decode, with all its plain letters",
    Capability.TOKENIZING,
    CONTINUING,
    broad=True,
)
def any_tokens(subject: Subject) -> None:
    search(subject, strategies.texts(), _encoded, lambda text: 0.1, most=100)


def _batch_cost(case: tuple[list[str], int, Options]) -> float:
    rows, most, _ = case
    return 2.0 * len(rows) * most


def _classified_together(world: World, rows: list[str]) -> None:
    options = telling(world.subject)
    results = classify(world.model, rows, options)
    world.same_rows(rows, results, options, "alone, and in")
    if world.subject.declares(Capability.CLASSIFY_STREAMING):
        streamed = cast("ClassifyStreaming", world.model).classify_iter(iter(rows), **options)
        world.same_rows(rows, list(streamed), options, "alone, and by classify_iter in")


def _batched(world: World, case: tuple[list[str], int, Options]) -> None:
    rows, max_tokens, options = case
    request = evidence(world.subject) | options | {"max_tokens": max_tokens}
    results = batch(world.model, rows, request)
    what = f"alone, and in a batch with {options or 'no options'}"
    for place, (prompt, result) in enumerate(zip(rows, results, strict=True)):
        _same_answer(world, prompt, result, request, bool(options), f"{what}, row {place}")

    if world.subject.declares(Capability.BATCH_STREAMING):
        for place, (prompt, tokens) in enumerate(
            zip(rows, _streamed(world, rows, request), strict=True)
        ):
            wanted, error = world.answered(Capability.BATCH_GENERATE, prompt, request)
            how = f"{what}, row {place} of batch_stream: {prompt!r:.80}"
            if error is None:
                pair = wanted, Answer(tuple(tokens), wanted.finish_reason, prompt)
                world.agree([pair], how, bool(options))


def _streamed(world: World, rows: Sequence[str], request: dict[str, Any]) -> list[list[Token]]:
    """Return the tokens of each row.

    The error of a row that failed comes last, and is left to others.
    """
    tokens: list[list[Token]] = [[] for _ in rows]
    pairs = cast("BatchStreaming", world.model).batch_stream(rows, **request)
    try:
        for row, token in pairs:
            tokens[row].append(token)
    except CoreError:
        pass
    return tokens


def _same_answer(
    world: World, prompt: str, result: BatchResult, request: Options, drawn: bool, what: str
) -> None:
    wanted, error = world.answered(Capability.BATCH_GENERATE, prompt, request)
    if same_error(error, result.error, f"{what}: {prompt!r:.80}"):
        answer = Answer(result.tokens, result.finish_reason, prompt)
        world.same_answer(wanted, answer, f"{what}: {prompt!r:.80}", drawn)


def _answered(world: World, case: tuple[str, int, Options, tuple[int, int], str]) -> None:
    prompt, most, options, (start, size), form = case
    request = evidence(world.subject) | options | {"max_tokens": most}
    free, error = world.answered(voice(world.subject), prompt, request)

    # A smaller max_tokens gives a beginning.
    few = max(1, most // 2)
    begun, same = _spoken(world, prompt, request | {"max_tokens": few})
    if not same_error(error, same, f"{prompt!r:.80} with max_tokens={few}"):
        return
    shorter = Answer(free.tokens[:few], begun.finish_reason, free.prompt)
    what = f"with max_tokens={most}, and with {few}"
    world.agree([(shorter, begun)], f"{what}: {prompt!r:.80}", bool(options))

    # A stop string ends the text where it begins first.
    text = free.text.partition(_BROKEN)[0]
    if text:
        start %= len(text)
        stop = _formed(text[start : start + size], form)
        _stopped(world, prompt, request, bool(options), free, stop)


def _formed(stop: str, form: str) -> str:
    """Return the stop string, or one that only looks like it."""
    if form.startswith("NF"):
        return unicodedata.normalize(cast("Any", form), stop)
    return stop + form


def _stopped(
    world: World, prompt: str, request: Options, drawn: bool, free: Answer, stop: str
) -> None:
    place = free.text.partition(_BROKEN)[0].find(stop)
    if place < 0 and _BROKEN in free.text:
        return
    answer, error = _spoken(world, prompt, request | {"stop": (stop,)})
    must(error is None, f"stop=({stop!r},) after {prompt!r:.80} raised {error!r}")
    expected = free.text if place < 0 else free.text[:place]
    ended = place < 0 or answer.finish_reason == "stop"
    parted = parting(free, answer)
    apart = parted is not None and parted < min(len(free.ids), len(answer.ids))
    if answer.text == expected and (ended or not apart):
        must(ended, f"stop=({stop!r},) was found, and finish_reason is {answer.finish_reason!r}")
        return

    # Where the two part before the stop string, noise may have its part in it: also in that a
    # token without text stands where the stop string was.
    if apart and parted is not None:
        cut = slice(0, parted + 1)
        pair = Answer(free.tokens[cut], None, free.prompt), Answer(answer.tokens[cut], None)
        world.agree([pair], f"with and without stop=({stop!r},): {prompt!r:.80}", drawn)
        return
    again, _ = _spoken(world, prompt, request)
    must(
        again.ids != free.ids,
        f"stop=({stop!r},) after {prompt!r:.80} left {answer.text!r} of {free.text!r}: "
        f"expected {expected!r}",
    )


def _spoken(world: World, prompt: str, request: Options) -> Outcome:
    return said(voice(world.subject), world.model, prompt, request)


def _encoded(world: World, text: str) -> None:
    model: Any = world.model
    ids, size = model.encode(text), model.info.vocab_size
    must(
        isinstance(ids, list) and all(is_id(id, size) for id in ids),
        f"encode({text!r}) is {ids!r:.120}: a list of ids below {size}",
    )
    must(model.encode(text) == ids, f"encode({text!r}) gave two different lists")

    once = model.decode(ids)
    again = model.decode(model.encode(once)) if once else once
    # Some tokenizers put a space before every text, and some drop it again; what stands for
    # a character that has no meaning is theirs to choose.
    must(
        not _has_meaning(text) or again.lstrip(" ") == once.lstrip(" "),
        f"{text!r} came back as {once!r}, and that as {again!r}",
    )
    must(
        _holds(once, _plain(text)),
        f"{text!r} came back as {once!r}: letters of it are lost",
    )


def _has_meaning(text: str) -> bool:
    """Return whether the text has no control, private-use or unassigned characters."""
    return not any(unicodedata.category(character) in ("Cc", "Cn", "Co") for character in text)


def _plain(text: str) -> str:
    """Return the letters that no neighbour can be joined with: what follows is ASCII as well."""
    following = f"{text[1:]}."
    return "".join(
        one
        for one, then in zip(text, following, strict=True)
        if f"{one}{then}".isascii() and one.isalnum()
    )


def _holds(text: str, letters: str) -> bool:
    """Return whether these letters occur in the text, in this order."""
    rest = iter(text)
    return all(letter in rest for letter in letters)
