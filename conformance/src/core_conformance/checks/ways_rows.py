"""Clauses over the table of ways: prompts of any size and number, and rows that fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core.errors import EmptyPromptError, PromptTooLongError
from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.ask import EVEN, tokenizing
from core_conformance.checking.budget import within
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.sizes import NO_SIZES, overlong, room, rows, short_context, sized
from core_conformance.checking.subject import OPERATIONS, Subject
from core_conformance.checking.ways.agreeing import Options, agree, alike, draws_tell, gives, wanted
from core_conformance.checking.ways.oddities import BROKEN, MIXED
from core_conformance.checking.ways.table import CONTINUATION, Way, every_way

_SIZES = (33, 64, 17, 65)  # tokens, at which blocks end
_COUNTS = (3, 17, 33)  # rows
_TOKENS, _FEW = 3, 2
_A_TOKEN = 1 / 20  # passes
_FEW_TOKENS = 4096
_READING = tuple(name for name in OPERATIONS if name is not Capability.CHAT)  # none is too short


@check(
    "lengths.ways",
    "A prompt of any length MUST be read by each operation as by any other, whatever the options",
    OPERATIONS,
    broad=True,
)
def every_length(subject: Subject) -> None:
    options, tried = [*_options(subject)], False
    sizes = [size for size in _SIZES if size <= room(subject)]
    cases = [(turn, size, way) for turn, size in enumerate(sizes) for way in every_way(subject)]

    def cost(case: tuple[int, int, Way]) -> float:
        return 4 * (1 + case[1] * _A_TOKEN)

    for turn, size, way in within(subject, cases, cost, "tokens of a prompt", 0.5):
        prompts = [sized(subject, size, turn=21), ask.SHORT, sized(subject, size - 1, turn=22)]
        given = [prompt for prompt in prompts if prompt]
        tried = tried or len(given) > 1
        own = {} if way.bare else options[turn % len(options)]
        request = way.options(subject, _TOKENS) | own
        agree(subject, way, given, request, f"prompts of about {size} tokens with {own}")
    testable(tried, NO_SIZES)


@check(
    "rows.ways",
    "Any number of rows MUST each get what their prompt gets alone, from each operation, whatever "
    "the options; no row gives an empty list",
    (
        Capability.CLASSIFY,
        Capability.CLASSIFY_STREAMING,
        Capability.BATCH_GENERATE,
        Capability.BATCH_STREAMING,
        Capability.SCORING,
        Capability.HIDDEN_STATES,
        Capability.TOKEN_PROMPTS,
    ),
    broad=True,
)
def every_number(subject: Subject) -> None:
    callers = [way for way in every_way(subject) if not way.single]
    options = [*_options(subject)]
    for way in callers:
        nothing = gives(subject, way, subject.model, [], way.options(subject, 1))
        must(not nothing, f"{way.name} of no prompts gave {nothing!r:.200}")

    def cost(case: tuple[int, int, Way]) -> float:
        return 2 + case[1] / 8

    cases = [(turn, count, way) for turn, count in enumerate(_COUNTS) for way in callers]
    for turn, count, way in within(subject, cases, cost, "rows", 0.5):
        prompts = rows(count - 1)[::-1]
        prompts += prompts[:1]  # one of them comes twice
        own = {} if way.bare else options[turn % len(options)]
        request = way.options(subject, _FEW) | own
        given = gives(subject, way, subject.model, prompts, request)
        places = sorted({0, count // 2, count - 2, count - 1})
        expected = wanted(subject, way, [prompts[place] for place in places], request)
        what = f"alone, and one of {count} rows of {way.name} with {own}"
        some = [given[place] for place in places]
        alike(subject, way, expected, some, what, drawn="seed" in own)


def _options(subject: Subject) -> Iterator[Options]:
    """Yield options under which all ways that take any must agree."""
    if draws_tell(subject):
        yield EVEN | {"seed": 11}
        yield {**MIXED}
    yield {}


# --------------------------------------------------------------------------- errors


@check(
    "rows.unlike-errors",
    "Rows that fail for different reasons MUST each have their own error, from each operation, and "
    "leave every other row as it is alone",
    _READING,
    broad=True,
)
def unlike_errors(subject: Subject) -> None:
    with short_context(subject, _FEW_TOKENS) as model:
        prompts = [ask.QUESTION, "", ask.PLAIN[1], overlong(model), ask.PLAIN[2], BROKEN]
        prompts += [*ask.PLAIN[3:5], overlong(model) + " x", "", ask.SHORT]
        for way in within(subject, every_way(subject), lambda _: 24.0, "operations", 1.0):
            if Capability.CHAT in (way.name, way.base):
                continue
            given = prompts if "tokens" not in way.name else [*filter(_is_text, prompts)]
            options = way.options(subject, _FEW)
            given_rows = gives(subject, way, model, given, options)
            good = [place for place, prompt in enumerate(given) if _is_good(model, prompt)]
            expected = wanted(subject, way, [given[place] for place in good], options, model)
            what = f"alone, and among rows that fail, {way.name}"
            alike(subject, way, expected, [given_rows[place] for place in good], what)
            for prompt, row in zip(given, given_rows, strict=True):
                _is_wrong(subject, way, prompt, row.error, in_order=_in_order(way))


def _is_wrong(
    subject: Subject, way: Way, prompt: str, error: Exception | None, in_order: bool
) -> None:
    """Check the error of a prompt that cannot run; where they come at the end, the first of all."""
    kinds: tuple[type[Exception], ...] = ()
    if not prompt:
        kinds = (EmptyPromptError,)
    elif len(prompt) > 2 * len(BROKEN) and prompt[:4] == "0 1 ":
        kinds = (PromptTooLongError,) if in_order else (EmptyPromptError,)
    must(
        not kinds or isinstance(error, kinds),
        f"{prompt!r:.60} in {way.name} has the error {error!r}: expected {kinds[0:1]}",
    )
    if isinstance(error, PromptTooLongError) and subject.declares(Capability.TOKENIZING):
        length = len(tokenizing(subject).encode(prompt))
        most = length
        if Capability.SCORING in (way.name, way.base):  # which may count what it scores
            most = len(tokenizing(subject).encode(prompt + CONTINUATION))
        must(
            length <= error.length <= most,
            f"{error!r} of {way.name}, of a prompt of {length} tokens",
        )


def _in_order(way: Way) -> bool:
    """Return whether each row has its own error; batch_stream raises that of the first one."""
    return Capability.BATCH_STREAMING not in (way.name, way.base)


def _is_text(prompt: str) -> bool:
    return prompt != BROKEN


def _is_good(model: Any, prompt: str) -> bool:
    return bool(prompt) and _is_text(prompt) and prompt[:4] != "0 1 "
