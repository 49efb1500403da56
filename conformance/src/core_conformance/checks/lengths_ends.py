"""``max_tokens`` at the ends of its range: one token, and more than any machine can count."""

from __future__ import annotations

from core.errors import GenerationTimeout
from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING, Answer, answer, batch, evidence, speak
from core_conformance.checking.calls import close_quietly
from core_conformance.checking.check import check, leave_out, must
from core_conformance.checking.compare import Pair, same_answers
from core_conformance.checking.draws.operations import draw, drawing
from core_conformance.checking.subject import Subject

_LENGTH = 6
_HUGE = (2**31, 2**32 + 1, 2**63, 2**64 + 1)
_PATIENCE = 10.0  # seconds, for a batch that a stop token is to end at once
_NEEDS = (*SPEAKING, Capability.BATCH_GENERATE)


@check(
    "streaming.max-tokens-one",
    'max_tokens=1 MUST give the first token of the longer answer, and end with "length"',
    _NEEDS,
    broad=True,
)
def one_token(subject: Subject) -> None:
    for name, prompt, free in _answers(subject):
        (limited,) = draw(subject, name, [prompt], 1)
        first = Answer(free.tokens[:1], "length", free.prompt)
        same_answers(subject, [(first, limited)], f"{name} of {prompt!r}, and with max_tokens=1")
        must(
            limited.ids != first.ids or limited.finish_reason == "length",
            f"{name} with max_tokens=1 gave {limited.ids} and ended with {limited.finish_reason!r}",
        )


@check(
    "streaming.max-tokens-huge",
    "A max_tokens larger than any context MUST be taken, and change nothing before the end",
    _NEEDS,
    broad=True,
)
def any_number_of_tokens(subject: Subject) -> None:
    for name, prompt, free in _answers(subject):
        for count in _HUGE:
            rows = name is Capability.BATCH_GENERATE
            pair = (_rows if rows else _stream)(subject, prompt, free, count)
            what = f"{name} of {prompt!r} with max_tokens={_LENGTH}, and with {count}"
            if pair is None:
                leave_out(f"{what}: it did not end at a stop token")
            else:
                same_answers(subject, [pair], what)


def _answers(subject: Subject) -> list[tuple[Capability, str, Answer]]:
    """Return a greedy answer of some tokens from each operation that generates."""
    names = [name for name in drawing(subject) if name is not Capability.CLASSIFY]
    answers: list[tuple[Capability, str, Answer]]
    answers = [(name, *_longest(subject, name)) for name in names]
    goes_on(subject, [free.ids for _, _, free in answers], names[0])
    return answers


def _longest(subject: Subject, name: Capability) -> tuple[str, Answer]:
    """Return the first prompt with an answer of full length, or else the longest answer."""
    best = ("", Answer((), None))
    for prompt in ask.PLAIN:
        (free,) = draw(subject, name, [prompt], _LENGTH)
        best = max(best, (prompt, free), key=lambda candidate: len(candidate[1].ids))
        if len(best[1].ids) == _LENGTH:
            break
    return best


def _stream(subject: Subject, prompt: str, free: Answer, max_tokens: int) -> Pair:
    """Read as many tokens of a stream as the shorter answer had, or all if it ended before."""
    stream = speak(subject, subject.model, prompt, max_tokens=max_tokens, **evidence(subject))
    try:
        tokens = tuple(token for _, token in zip(free.tokens, stream, strict=False))
        ended = len(tokens) < len(free.tokens)
        return free, Answer(tokens, stream.finish_reason if ended else None, free.prompt)
    finally:
        close_quietly(stream)


def _rows(subject: Subject, prompt: str, free: Answer, max_tokens: int) -> Pair | None:
    """Return a row that ends at its second token or so; None where it went on for too long."""
    stops = set(free.ids[1:]) - {free.ids[0]}
    end = next((place for place, token in enumerate(free.ids) if token in stops), None)
    if end is None:
        return None
    (row,) = batch(subject, [prompt], max_tokens, stop_tokens=tuple(stops), timeout=_PATIENCE)
    if isinstance(row.error, GenerationTimeout):
        return None
    return Answer(free.tokens[:end], "stop", free.prompt), answer(row, prompt)
