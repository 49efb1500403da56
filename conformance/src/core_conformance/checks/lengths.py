"""Checks of prompts, continuations and answers of every length, up to the context's own.

Prompts are read in chunks, and caches grow by blocks: so an engine breaks where one is just full.
What a prompt of some length gets is held against what decoding gave one token before it, and
against other operations, which read that text in other pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from core.errors import OptionError, PromptTooLongError
from core.protocols import Capability, TextModel
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import (
    Answer,
    answer,
    batch,
    classify,
    evidence,
    generate,
    row_logits,
    sampled,
    score,
    tokenizing,
)
from core_conformance.checking.budget import within
from core_conformance.checking.calls import ending
from core_conformance.checking.check import must, testable
from core_conformance.checking.compare import (
    Pair,
    log_total,
    near,
    same_answers,
    same_numbers,
    same_rows,
)
from core_conformance.checking.recall import same_results
from core_conformance.checking.recall import telling as in_full
from core_conformance.checking.registry import check
from core_conformance.checking.sizes import MOST, cuts, room, sized, telling
from core_conformance.checking.subject import Subject

_PASS = 20  # tokens
_PLACES = 20  # in an answer or a continuation
_ANSWERS = (6, 70, MOST, 20, 36)  # tokens; of the long ones, one that is longer than a block of 64
_APART = (8, 32, 64, 96, 112, 7, 9, 16, 31, 33, 63, 65)  # tokens between the lengths of two rows
_SMALL = 64  # positions
_NEXT = " and then"
_NO_SIZES = "the tokenizer cuts no text at any of the lengths that were tried: take another model"


@check(
    "lengths.prompts",
    "generate behind a prompt of any length MUST give what is read there as the end of a prompt",
    Capability.GENERATE,
    broad=True,
)
def every_prompt_length(subject: Subject) -> None:
    answers, pairs = list[Answer](), list[Pair]()
    lengths = telling(room(subject))
    for length in within(subject, lengths, _read_thrice, "prompts of so many tokens"):
        prompt = sized(subject, length)
        if prompt is not None:
            answers.append(generate(subject, prompt, 2))
            what = f"a prompt of {length} tokens"
            pairs += _read_again(subject, answers[-1], range(2), what)
    testable(bool(answers), _NO_SIZES)
    goes_on(subject, [each.tokens for each in answers])
    same_answers(subject, pairs, "tokens behind prompts of all lengths, and what is read there")


@check(
    "lengths.answers",
    "Every token of a long answer MUST be what is read behind the text so far",
    Capability.GENERATE,
    broad=True,
)
def long_answers(subject: Subject) -> None:
    longest = room(subject, behind=40)
    lengths = [length for length in _ANSWERS if length <= longest]
    answers, pairs = list[Answer](), list[Pair]()
    for length in within(subject, lengths, lambda each: each, "answers of so many tokens"):
        prompt = sized(subject, 8, turn=length)
        if prompt is not None:
            answers.append(generate(subject, prompt, length))
            places = telling(length - 1)[:_PLACES]
            pairs += _read_again(subject, answers[-1], places, f"an answer of {length} tokens")
    testable(bool(answers), _NO_SIZES)
    goes_on(subject, [each.tokens for each in answers])
    same_answers(subject, pairs, "tokens of long answers, and what is read behind the text so far")


@check(
    "lengths.scores",
    "score MUST read a prompt of any length as classify reads it",
    Capability.SCORING,
    Capability.CLASSIFY,
    Capability.LOGITS,
    Capability.TOKENIZING,
    broad=True,
)
def every_scored_length(subject: Subject) -> None:
    encode, compared = tokenizing(subject).encode, 0
    lengths = telling(room(subject, behind=2 * len(_NEXT)))
    for length in within(subject, lengths, _read_twice, "prompts of so many tokens"):
        prompt = sized(subject, length, turn=1)
        ids = encode(prompt + _NEXT) if prompt else ()
        if prompt is None or list(ids[:length]) != list(encode(prompt)):
            continue
        row = row_logits(classify(subject, [prompt], return_logits=True)[0])
        found = score(subject, [prompt], [_NEXT])[0].token_logprobs
        wanted = row[ids[length]] - log_total(row)
        must(
            len(found) == len(ids) - length and near(subject, wanted, found[0]),
            f"{_NEXT!r} behind a prompt of {length} tokens has the token_logprobs {found}; "
            f"classify says {wanted:.5f} of the first of {len(ids) - length} tokens",
        )
        compared += 1
    testable(bool(compared), _NO_SIZES)


@check(
    "lengths.continuations",
    "A continuation of any length MUST have a logprob for each token, wherever the prompt ends",
    Capability.SCORING,
    Capability.TOKENIZING,
    broad=True,
)
def every_continuation(subject: Subject) -> None:
    fronts = cuts(subject, sized(subject, room(subject), turn=2) or "a")
    head = min((size for size in fronts if size >= 2), default=0)
    tails = [size for size in telling(max(fronts) - head) if head + size in fronts]
    testable(bool(tails), _NO_SIZES)
    whole = _logprobs(subject, fronts, head, max(fronts))
    for size in within(subject, tails[:_PLACES], _read_twice, "continuations of so many tokens"):
        # The same tokens with nothing behind them.
        end = head + size
        _same_logprobs(subject, whole[:size], _logprobs(subject, fronts, head, end), size)

        # The next one behind a prompt that holds them.
        if end + 1 in fronts:
            found = _logprobs(subject, fronts, end, end + 1)
            _same_logprobs(subject, whole[size : size + 1], found, size)


@check(
    "lengths.apart",
    "Rows of very unequal lengths MUST each get what they get alone: padding is not read",
    (Capability.CLASSIFY, Capability.BATCH_GENERATE),
    broad=True,
)
def unequal_rows(subject: Subject) -> None:
    shortest = 3
    apart = [each for each in _APART if shortest + each <= room(subject)]
    compared = 0
    for gap in within(subject, apart, lambda gap: 4 + gap / 4, "rows of lengths so far apart"):
        sizes = (shortest, shortest + gap, shortest + 1)
        found = [sized(subject, size, turn=3) for size in sizes]
        given = [prompt for prompt in found if prompt is not None]
        what = f"alone, and beside rows that are {gap} tokens longer or shorter"
        if subject.declares(Capability.CLASSIFY):
            options = in_full(subject)
            alone = [classify(subject, [prompt], **options)[0] for prompt in given]
            same_results(subject, given, alone, classify(subject, given, **options), what)
        if subject.declares(Capability.BATCH_GENERATE):
            _same_batch(subject, given, what)
        compared += len(given) > 1
    testable(bool(compared), _NO_SIZES)


@check(
    "lengths.context",
    "A prompt that fills the context exactly MUST be read, and one token more is too long",
    (Capability.CLASSIFY, Capability.GENERATE),
    Capability.TOKENIZING,
    broad=True,
)
def to_the_contexts_end(subject: Subject) -> None:
    try:
        model = subject.load(context_len=_SMALL)
    except OptionError:
        model = subject.load()  # a backend may refuse to make it smaller
    with model:
        limit = model.info.context_length
        sizes = (_SMALL // 2, limit, limit + 1, limit - 1)
        for size in within(subject, sizes, _read_thrice, f"of a context of {limit}, prompts"):
            prompt = sized(subject, size, turn=4)
            if prompt is None:
                continue
            if subject.declares(Capability.CLASSIFY):
                _classifies(subject, model, prompt, size)
            if subject.declares(Capability.GENERATE):
                _generates(subject, model, prompt, size)


def _classifies(subject: Subject, model: TextModel, prompt: str, size: int) -> None:
    limit, options = model.info.context_length, in_full(subject)
    (found,) = model.classify([prompt], **options)
    must(
        isinstance(found.error, PromptTooLongError) if size > limit else found.error is None,
        f"classify of a prompt of {size} tokens in a context of {limit} has the error "
        f"{found.error!r}",
    )
    if size <= limit and size <= subject.model.info.context_length:
        what = f"a prompt of {size} tokens in contexts of two sizes, one of them {limit}"
        same_results(subject, [prompt], classify(subject, [prompt], **options), [found], what)


def _generates(subject: Subject, model: TextModel, prompt: str, size: int) -> None:
    limit, most = model.info.context_length, 4
    found = ending(lambda: model.generate(prompt, max_tokens=most, **evidence(subject)))
    seen = f"a prompt of {size} tokens in a context of {limit} gave {len(found.tokens)} tokens, "
    seen += f"{found.reason!r} and {found.error!r}"
    if size > limit:
        must(isinstance(found.error, PromptTooLongError) and not found.tokens, seen)
        return
    # The last token drawn needs no place of its own.
    places = limit - size + 1
    must(found.error is None and len(found.tokens) <= min(most, places), seen)
    must(found.reason == "stop" or len(found.tokens) >= min(most, places - 1), seen)


def _read_again(
    subject: Subject, given: Answer, places: Iterable[int], what: str
) -> Iterator[Pair]:
    """The tokens at some places of an answer, each with what is read behind the text before it."""
    for place in places:
        front = _front(subject, given, place)
        if front is not None:
            pair = Answer((given.tokens[place],), None, front), _read(subject, front)
            behind = f"{what}: token {place} of what is generated, and what is read in its place"
            same_answers(subject, [pair], behind)
            same_numbers(subject, *pair, behind)
            yield pair


def _front(subject: Subject, given: Answer, place: int) -> str | None:
    """The text before a token; None where the tokenizer would read it otherwise."""
    if place >= len(given.tokens):
        return None
    front = given.prompt + "".join(token.text for token in given.tokens[:place])
    if place and not subject.declares(Capability.TOKENIZING):
        return None
    if place and list(tokenizing(subject).encode(front)) != [
        *tokenizing(subject).encode(given.prompt),
        *given.ids[:place],
    ]:
        return None
    return front


def _read(subject: Subject, front: str) -> Answer:
    """The next token, as another call reads it: with ``classify`` where it is declared."""
    if subject.declares(Capability.CLASSIFY):
        return sampled(classify(subject, [front], **evidence(subject))[0])
    return generate(subject, front, 1)


def _same_batch(subject: Subject, given: Sequence[str], what: str) -> None:
    alone = [answer(batch(subject, [prompt], 2)[0], prompt) for prompt in given]
    found = list(map(answer, batch(subject, given, 2), given))
    same_rows(subject, list(zip(alone, found, strict=True)), what)


def _logprobs(subject: Subject, fronts: Mapping[int, str], start: int, end: int) -> Sequence[float]:
    """What score says of the tokens from one place to another of a text."""
    prompt = fronts[start]
    return score(subject, [prompt], [fronts[end][len(prompt) :]])[0].token_logprobs


def _same_logprobs(
    subject: Subject, wanted: Sequence[float], found: Sequence[float], size: int
) -> None:
    must(
        len(found) == len(wanted)
        and all(near(subject, *pair) for pair in zip(wanted, found, strict=True)),
        f"token_logprobs after {size} tokens of a continuation: {_ends(found)}; as parts of a "
        f"longer one they were {_ends(wanted)}",
    )


def _ends(values: Sequence[float]) -> str:
    shown = [f"{value:.4f}" for value in values]
    return f"{len(shown)}, " + ", ".join(
        shown if len(shown) < 7 else [*shown[:3], "..", *shown[-3:]]
    )


def _read_twice(tokens: int) -> float:
    return 2 * max(1.0, tokens / _PASS)


def _read_thrice(tokens: int) -> float:
    return 3 * max(1.0, tokens / _PASS)
