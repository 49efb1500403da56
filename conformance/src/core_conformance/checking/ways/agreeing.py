"""A way judged by its base: what it gives together is what the base gives each prompt alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from core.errors import UnsupportedOptionError
from core.kit.support import REFUSABLE
from core.protocols import Capability, TextModel
from core.types import Message, Token
from core_conformance.checking.ask import Answer, tokenizing
from core_conformance.checking.calls import promptly
from core_conformance.checking.check import must
from core_conformance.checking.compare import (
    LONGEST_LABEL,
    near,
    same_draws,
    same_states,
)
from core_conformance.checking.compare import same_rows as same_answers
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.table import BY_NAME, Row, Way

Options = dict[str, Any]
_SMALL = 1e-3  # a tolerance at which few draws differ
_CONTINUING = (Capability.GENERATE, Capability.SUBMITTING, Capability.BATCH_GENERATE)
_alone: WeakKeyDictionary[Subject, dict[str, Row]] = WeakKeyDictionary()


def gives(
    subject: Subject, way: Way, model: TextModel, prompts: Sequence[str], options: Options
) -> list[Row]:
    """Return a row for each prompt: of one call, or of one for each prompt."""

    def ask() -> list[Row]:
        if way.single:
            return [row for prompt in prompts for row in way.ask(model, [prompt], options)]
        return way.ask(model, prompts, options)

    what = f"{way.name} of {len(prompts)} prompts with {sorted(options)}"
    rows = promptly(subject, ask, what)
    must(len(rows) == len(prompts), f"{what} gave {len(rows)} rows")
    return rows


def wanted(
    subject: Subject,
    way: Way,
    prompts: Sequence[str],
    options: Options,
    model: TextModel | None = None,
) -> list[Row]:
    """Return the row of each prompt alone, by the base of the way.

    Rows of the shared model are cached.
    """
    base, texts = judge(subject, way, prompts)
    known = _alone.setdefault(subject, {}) if model is None else {}
    rows = []
    for text in texts:
        key = repr((base.name, text, options))
        if key not in known:
            (known[key],) = gives(subject, base, model or subject.model, [text], options)
        rows.append(known[key])
    return rows


def agree(
    subject: Subject,
    way: Way,
    prompts: Sequence[str],
    options: Options,
    what: str,
    model: TextModel | None = None,
) -> list[Row]:
    """Raise `Violation` unless a way gives what its base gives each prompt alone.

    Returns the rows of the base. An option that may be refused, and is, is left out.
    """
    try:
        rows = gives(subject, way, model or subject.model, prompts, options)
    except UnsupportedOptionError as error:
        if error.option not in REFUSABLE.intersection(options):
            raise
        fewer = {name: value for name, value in options.items() if name != error.option}
        return agree(subject, way, prompts, fewer, what, model)
    expected = wanted(subject, way, prompts, options, model)
    alike(subject, way, expected, rows, f"{what}, {way.name}", drawn="seed" in options)
    return expected


def alike(
    subject: Subject,
    way: Way,
    expected: Sequence[Row],
    rows: Sequence[Row],
    what: str,
    drawn: bool = False,
) -> None:
    """Raise `Violation` unless each row of a way is as expected: its error, or all that it has."""
    pairs = []
    for place, (one, row) in enumerate(zip(expected, rows, strict=True)):
        if _is_silent(way, one, row):
            continue
        here = f"{what}: row {place}, {one.answer.prompt!r:.80}"
        must(
            type(one.error) is type(row.error), f"{here} has {row.error!r}, expected {one.error!r}"
        )
        if row.error is None:
            answer = with_texts(one.answer, row.answer) if way.textless else row.answer
            pairs.append((one.answer, answer))
            if one.answer.ids == answer.ids:
                _same_numbers(subject, way, one.numbers, row.numbers, here)
            if row.state or one.state:
                same_states(subject, row.state, one.state, here)
    if pairs:
        (same_draws if drawn else same_answers)(subject, pairs, what)


def draws_tell(subject: Subject) -> bool:
    """Return whether a few seeded draws can be compared: noise is small, or margins can be read."""
    if not subject.declares(Capability.SEED):
        return False
    margins = subject.declares(Capability.LOGPROBS) or subject.declares(
        Capability.CLASSIFY, Capability.LOGITS
    )
    return margins or subject.stated_tolerance <= _SMALL


def _is_silent(way: Way, expected: Row, row: Row) -> bool:
    """Return whether a row that has no token may be sound: batch_stream raises another row's error.

    Such a row looks like one that failed.
    """
    streams = Capability.BATCH_STREAMING in (way.name, way.base)
    return streams and expected.error is None and not (expected.answer.ids or row.answer.ids)


def judge(subject: Subject, way: Way, prompts: Sequence[str]) -> tuple[Way, list[str]]:
    """Return the way that judges another, and what it reads of these prompts."""
    name = way.base or way.name
    if name == Capability.CHAT:
        if not subject.declares(Capability.GENERATE, Capability.TOKENIZING):
            return BY_NAME[name], [*prompts]
        render = tokenizing(subject).render_chat
        return BY_NAME["generate"], [render([Message("user", prompt)]) for prompt in prompts]
    if way.generates:
        name = next(filter(subject.declares, _CONTINUING), name)
    elif name == Capability.CLASSIFY_STREAMING and subject.declares(Capability.CLASSIFY):
        name = Capability.CLASSIFY
    return BY_NAME[name], [*prompts]


def with_texts(expected: Answer, answer: Answer) -> Answer:
    """Return an answer of ids alone with the texts of the expected one."""
    texts = [token.text for token in expected.tokens] + [""] * len(answer.tokens)
    tokens = zip(answer.tokens, texts, strict=False)
    return replace(answer, tokens=tuple(Token(one.id, text, one.logprob) for one, text in tokens))


def _same_numbers(
    subject: Subject, way: Way, expected: Sequence[float], numbers: Sequence[float], what: str
) -> None:
    tokens = LONGEST_LABEL if way.fixed else 1
    must(
        len(expected) == len(numbers)
        and all(near(subject, *both, tokens) for both in zip(expected, numbers, strict=True)),
        f"{what} has {numbers}, expected {expected}",
    )
