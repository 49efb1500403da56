"""Checks of prompts and answers of every length.

Prompts are read in chunks, and caches grow by blocks: so an engine breaks where one is just full.
The result for a prompt of some length is compared with what decoding gave one token before it,
and with other operations, which read that text in other pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from core.options import GenerateConfig
from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import (
    SPEAKING,
    Answer,
    answer,
    batch,
    classify,
    evidence,
    generate,
    read,
    row_logits,
    sampled,
    score,
    submitting,
    tokenizing,
)
from core_conformance.checking.budget import passes, within
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import Pair, near, same_answers, same_numbers, same_rows
from core_conformance.checking.recall import same_results
from core_conformance.checking.recall import telling as in_full
from core_conformance.checking.sizes import MOST, NO_SIZES, reading, room, sized, telling
from core_conformance.checking.subject import Subject

_MOST, _SOME, _LITTLE = 0.7, 0.4, 0.2  # of the passes for one check
_PLACES = 20  # in an answer, and at which it may end
_ANSWERS = (6, 70, MOST, 20, 36)  # tokens; of the long ones, one that is longer than a block of 64
_LIMIT = 66  # tokens of an answer that is requested in part
_BLOCKS = (8, 16, 32, 64, 128)  # tokens
_APART = (64, 112, 8, 32, 96, 16, 7, 9, 31, 33, 63, 65)  # tokens between the lengths of two rows
_LONG = (256, 257, 255, 512, 513, 511)  # tokens of a prompt
_REPEATS = (8, 70, 24, 100, 250)  # words between a prompt's beginning and its end
_AGAIN, _PENALTY = " the", 0.01  # what was seen becomes likely
_BEHIND = " and so"
_SHORT = "the model's answer ends after one token: use a model that continues for a dozen tokens"


@check(
    "lengths.prompts",
    "generate after a prompt of any length MUST give what is read there as the end of a prompt",
    Capability.GENERATE,
    broad=True,
)
def every_prompt_length(subject: Subject) -> None:
    answers, pairs = list[Answer](), list[Pair]()
    for length in within(subject, _lengths(subject), reading(3), "tokens of a prompt", _MOST):
        prompt = sized(subject, length)
        if prompt is not None:
            answers.append(generate(subject, prompt, 2))
            what = f"a prompt of {length} tokens"
            pairs += _read_again(subject, answers[-1], range(2), what)
    testable(bool(answers), NO_SIZES)
    goes_on(subject, [answer.tokens for answer in answers])
    same_answers(subject, pairs, "tokens after prompts of all lengths, and what is read there")


@check(
    "lengths.answers",
    "Every token of a long answer MUST be what is read after the text so far",
    Capability.GENERATE,
    broad=True,
)
def long_answers(subject: Subject) -> None:
    longest = room(subject, spare=40)
    lengths = [length for length in _ANSWERS if length <= longest]
    answers, pairs = list[Answer](), list[Pair]()
    for length in within(subject, lengths, lambda length: length, "tokens of an answer", _MOST):
        prompt = sized(subject, 8, turn=length)
        if prompt is not None:
            answers.append(generate(subject, prompt, length))
            places = [*telling(length - 1)[:_PLACES], 0]
            pairs += _read_again(subject, answers[-1], places, f"an answer of {length} tokens")
    testable(bool(answers), NO_SIZES)
    goes_on(subject, [answer.tokens for answer in answers])
    same_answers(subject, pairs, "tokens of long answers, and what is read after the text so far")


@check(
    "lengths.rows",
    "Rows of any length beside one another MUST each give what is read after their prompts",
    (Capability.BATCH_GENERATE, Capability.SUBMITTING),
    (Capability.CLASSIFY, Capability.GENERATE),
    broad=True,
)
def rows_of_all_lengths(subject: Subject) -> None:
    answers, pairs = list[Answer](), list[Pair]()
    blocks = [size for size in _BLOCKS if size < room(subject)]
    for block in within(subject, blocks, reading(9), "rows as long as a block", _SOME):
        candidates = [sized(subject, block + offset, turn=7) for offset in (1, 0, -1)]
        given = [prompt for prompt in candidates if prompt is not None]
        for name, ask_for in _SEVERAL.items():
            if subject.declares(name):
                for answer in ask_for(subject, given):
                    answers.append(answer)
                    what = f"{name} of three rows of about {block} tokens"
                    pairs += _read_again(subject, answer, range(2), what)
    testable(bool(answers), NO_SIZES)
    goes_on(subject, [answer.tokens for answer in answers])
    same_answers(subject, pairs, "rows of all lengths, and what is read after their prompts")


@check(
    "lengths.limits",
    "max_tokens of any number MUST end the same answer after so many tokens",
    SPEAKING,
    broad=True,
)
def every_limit(subject: Subject) -> None:
    prompt, longest = sized(subject, 8, turn=8) or ask.QUESTION, _longest(subject)
    whole = generate(subject, prompt, longest)
    goes_on(subject, [whole.tokens])
    limits = [limit for limit in telling(longest) if limit < len(whole.tokens)][:_PLACES]
    testable(bool(limits), _SHORT)

    for limit in within(subject, limits, lambda limit: 1 + limit / 2, "max_tokens", _LITTLE):
        limited = generate(subject, prompt, limit)
        text = "".join(token.text for token in whole.tokens[: limit - 1])
        must(
            limited.ids != whole.ids[:limit]
            or (limited.finish_reason == "length" and limited.text.startswith(text)),
            f"max_tokens={limit} gave {limited.text!r} ({limited.finish_reason}) of {whole.text!r}",
        )

        cut = Answer(whole.tokens[:limit], "length", whole.prompt)
        same_answers(subject, [(cut, limited)], f"max_tokens={limit} and {longest}")
        must(len(limited.tokens) <= limit, f"max_tokens={limit} gave {len(limited.tokens)} tokens")


@check(
    "lengths.penalty",
    "repeat_penalty MUST count the tokens of a prompt of any length, the first ones too",
    Capability.CLASSIFY,
    Capability.LOGITS,
    Capability.TOKENIZING,
    broad=True,
)
def penalty_sees_all(subject: Subject) -> None:
    head = sized(subject, 12, turn=9) or ask.QUESTION
    prompts = {count: head + _AGAIN * count for count in _REPEATS}
    sizes = {count: len(tokenizing(subject).encode(text)) for count, text in prompts.items()}
    fitting = [count for count, size in sizes.items() if size < subject.model.info.context_length]

    def cost(count: int) -> float:
        return reading(3)(sizes[count])

    for count in within(subject, fitting, cost, "words in between", _LITTLE):
        prompt = prompts[count]
        (result,) = classify(subject, [prompt], return_logits=True, repeat_penalty=_PENALTY)
        drawn = {"classify": result.token}
        if subject.declares(Capability.GENERATE):
            tokens = generate(subject, prompt, 1, repeat_penalty=_PENALTY).tokens
            drawn["generate"] = tokens[0] if tokens else None
        scores = list(row_logits(result))
        for seen in set(tokenizing(subject).encode(prompt)):
            scores[seen] *= _PENALTY if scores[seen] < 0 else 1 / _PENALTY
        for name, token in drawn.items():
            must(
                token is None or scores[token.id] >= max(scores) - 2 * subject.tolerance / _PENALTY,
                f"{name} with repeat_penalty={_PENALTY} after a prompt of {sizes[count]} tokens, "
                f"which ends with {_AGAIN!r} {count} times, gave {token!r}: not the best once "
                "all tokens of the prompt are counted",
            )


@check(
    "lengths.apart",
    "Rows of very unequal lengths MUST each get what they get alone: padding is not read",
    (Capability.CLASSIFY, Capability.BATCH_GENERATE, Capability.SCORING),
    broad=True,
)
def unequal_rows(subject: Subject) -> None:
    shortest = 3
    apart = [gap_size for gap_size in _APART if shortest + gap_size <= room(subject)]
    compared = 0
    for gap in within(subject, apart, lambda gap: 9 + gap / 5, "tokens between rows", _SOME):
        candidates = [sized(subject, size, turn=3) for size in (shortest + gap, shortest)]
        given = [prompt for prompt in candidates if prompt is not None]
        what = f"alone, and alongside rows that are {gap} tokens longer or shorter"

        if subject.declares(Capability.CLASSIFY):
            options = in_full(subject)
            alone = [classify(subject, [prompt], **options)[0] for prompt in given]
            same_results(subject, given, alone, classify(subject, given, **options), what)
        if subject.declares(Capability.BATCH_GENERATE):
            _same_batch(subject, given, what)
        if subject.declares(Capability.SCORING):
            _same_scores(subject, given, what)
        compared += len(given) > 1
    testable(bool(compared), NO_SIZES)


def _longest(subject: Subject) -> int:
    """Return the tokens of an answer that is requested in part, as the context and the passes
    allow.
    """
    return int(min(_LIMIT, room(subject, spare=40), max(12, passes(subject))))


def _lengths(subject: Subject) -> list[int]:
    """Return the lengths of prompts, starting around powers of two and the context's length."""
    context = subject.model.info.context_length
    short, long = telling(room(subject)), [*_LONG, context - 2, context - 1]
    fitting = [length for length in long if room(subject) < length < context]
    return [*short[:_PLACES], *fitting, *short[_PLACES:]]


def _read_again(
    subject: Subject, given: Answer, places: Iterable[int], what: str
) -> Iterator[Pair]:
    """Yield the tokens at some places of an answer, each with what is read after the text before
    it.
    """
    for place in places:
        front = _front(subject, given, place)
        if front is not None:
            pair = Answer((given.tokens[place],), None, front), _read(subject, front)
            where = f"{what}: token {place} of what is generated, and what is read in its place"
            same_answers(subject, [pair], where)
            same_numbers(subject, *pair, where)
            yield pair


def _front(subject: Subject, given: Answer, place: int) -> str | None:
    """Return the text before a token; None where the tokenizer would read it otherwise."""
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
    """Return the next token, as another call reads it: with ``classify`` if it is declared."""
    if subject.declares(Capability.CLASSIFY):
        return sampled(classify(subject, [front], **evidence(subject))[0])
    return generate(subject, front, 1)


def _same_batch(subject: Subject, given: Sequence[str], what: str) -> None:
    alone = [_batch(subject, [prompt])[0] for prompt in given]
    same_rows(subject, list(zip(alone, _batch(subject, given), strict=True)), what)


def _same_scores(subject: Subject, given: Sequence[str], what: str) -> None:
    scores = score(subject, given, [_BEHIND] * len(given))
    for prompt, other in zip(given, scores, strict=True):
        (one,) = score(subject, [prompt], [_BEHIND])
        must(
            near(subject, one.logprob, other.logprob, len(one.token_logprobs)),
            f"{what}: {_BEHIND!r} after {prompt!r} scores {one.logprob:.5f} and "
            f"{other.logprob:.5f}",
        )


def _batch(subject: Subject, given: Sequence[str]) -> list[Answer]:
    return list(map(answer, batch(subject, given, 2), given))


def _submitted(subject: Subject, given: Sequence[str]) -> list[Answer]:
    config = GenerateConfig(max_tokens=2, **evidence(subject))
    streams = [submitting(subject).submit(prompt, config) for prompt in given]
    return [read(stream, prompt) for stream, prompt in zip(streams, given, strict=True)]


_SEVERAL: dict[Capability, Callable[[Subject, Sequence[str]], list[Answer]]] = {
    Capability.BATCH_GENERATE: _batch,
    Capability.SUBMITTING: _submitted,
}
