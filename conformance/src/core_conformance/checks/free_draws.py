"""Checks of draws without a seed: other ones in another load, in each row, and in each sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from core.extensions import TokenPrompts
from core.protocols import Capability, TextModel
from core_conformance.checking import ask
from core_conformance.checking.ask import EVEN, tokenizing
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import BATCHES, run
from core_conformance.checking.ways.table import ways

_TOKENS, _ROWS = 8, 4
_PROMPTS = ask.PLAIN[:3]
_SILENT = "no prompt tried is continued by any token: use a model that generates text"

Drawn = list[tuple[int, ...]]


@check(
    "sampling.free-loads",
    "Draws without a seed MUST NOT be the same in every load of a model",
    (*ask.SPEAKING, *BATCHES),
)
def loads_draw_for_themselves(subject: Subject) -> None:
    for way in ways(subject, *ask.SPEAKING, *BATCHES):
        loads: list[Drawn] = []
        for _ in range(2):
            with subject.loaded() as model:
                loads.append(
                    [
                        row.answer.ids
                        for prompt in _PROMPTS
                        for row in run(subject, way, model, [prompt], _TOKENS, **EVEN)
                    ]
                )
        testable(any(loads[0]), _SILENT)
        must(
            loads[0] != loads[1],
            f"{way.name} of {len(_PROMPTS)} prompts without a seed drew {loads[0]} in two loads",
        )


@check(
    "batch.free-rows",
    "Rows of equal prompts without a seed MUST each be drawn independently, and so MUST the "
    "samples of a prompt of ids",
    (*BATCHES, Capability.TOKEN_PROMPTS),
)
def rows_draw_for_themselves(subject: Subject) -> None:
    for name, draw in _drawing(subject):
        drawn = [answer for prompt in _PROMPTS for answer in draw(subject.model, prompt)]
        groups = [set(drawn[start : start + _ROWS]) for start in range(0, len(drawn), _ROWS)]
        testable(any(any(group) for group in groups), _SILENT)
        must(
            any(len(group) > 1 for group in groups),
            f"{name} drew {_ROWS} times the same after each of {len(_PROMPTS)} prompts: {groups}",
        )


def _drawing(subject: Subject) -> Iterator[tuple[str, Callable[[TextModel, str], Drawn]]]:
    for way in ways(subject, *BATCHES):

        def rows(model: TextModel, prompt: str, way: Any = way) -> Drawn:
            rows = run(subject, way, model, [prompt] * _ROWS, _TOKENS, **EVEN)
            return [row.answer.ids for row in rows]

        yield way.name, rows
    if subject.declares(Capability.TOKEN_PROMPTS, Capability.TOKENIZING):
        encode = tokenizing(subject).encode

        def samples(model: TextModel, prompt: str) -> Drawn:
            options: dict[str, Any] = {"max_tokens": _TOKENS, "num_samples": _ROWS, **EVEN}
            ids = encode(prompt)
            sequences = cast("TokenPrompts", model).generate_tokens([ids], **options)
            return [sequence.ids[len(ids) :] for sequence in sequences]

        yield "generate_tokens", samples
