"""Decision requests run on a model: their prompts, the calls that these share, and the answers.

A caller prepares its requests, makes one call for each group of equal labels, and reads the answers
from the results, which are in the order of the prompts again. `decide` does so for a loaded model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TypeVar, cast

from core.errors import CoreError, UnsupportedOperationError
from core.extensions import Tokenizing
from core.kit.support import compares_sentences
from core.options import GenerateConfig
from core.protocols import TextModel
from core.rendering import Rendering
from core.types import ClassifyResult
from core_wires.questions import Answer, DecisionRequest
from core_wires.reading import Reading, readings, sentence_readings
from core_wires.usage import Usage, token_count

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prepared:
    """The readings of a request's questions, each with its prompt."""

    readings: tuple[Reading, ...]
    prompts: tuple[str, ...]

    def answers(self, results: Iterable[ClassifyResult]) -> list[Answer]:
        """Return the answers from the results of the prompts. Raises the first one's error."""
        pairs = zip(self.readings, results, strict=True)
        return [reading.answer(result) for reading, result in pairs]


def prepare(
    request: DecisionRequest, render: Rendering | None = None, *, sentences: bool = False
) -> Prepared:
    """Return a request with its prompts, which ``render`` formats with a chat template.

    ``sentences`` is for a model of label sentences, whose prompts are the states alone.
    """
    if sentences:
        parts = sentence_readings(request)
        return Prepared(parts, tuple(part.as_text() for part in parts))
    parts = readings(request)
    if render is None:
        return Prepared(parts, tuple(part.as_text() for part in parts))
    prompts = tuple(render(part.as_messages(), part.opening) for part in parts)
    return Prepared(parts, prompts)


def grouped(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """Return the indices of each key: rows with equal keys share a call."""
    groups: dict[Key, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    return groups


def in_order(
    groups: Mapping[Key, Sequence[int]], results: Iterable[Sequence[Result]]
) -> list[Result]:
    """Return the results of `grouped` rows, given group by group, in the order of the rows."""
    by_index: dict[int, Result] = {}
    for indices, of_group in zip(groups.values(), results, strict=True):
        by_index.update(zip(indices, of_group, strict=True))
    return [by_index[index] for index in range(len(by_index))]


def decide(
    model: TextModel,
    requests: Sequence[DecisionRequest],
    config: GenerateConfig | None = None,
    *,
    chat: bool = False,
) -> list[tuple[list[Answer], Usage] | Exception]:
    """Return the answers to each request with their token usage, or its error.

    ``config`` is for ``cancel``, ``timeout`` and variables of the chat template, which formats the
    questions with ``chat``. Questions with the same labels share a call, across requests.
    """
    config = config or GenerateConfig()
    if chat and not isinstance(model, Tokenizing):
        error = UnsupportedOperationError("chat templates", type(model).__name__, ())
        return [error for _ in requests]
    render = Rendering(cast("Tokenizing", model), config, labels=True) if chat else None
    prepare_one = partial(prepare, sentences=compares_sentences(model))
    prepared = [_attempt(prepare_one, request, render) for request in requests]

    # Every question is a row, and rows with equal labels share a call.
    valid = [one for one in prepared if isinstance(one, Prepared)]
    prompts = [prompt for one in valid for prompt in one.prompts]
    groups = grouped(reading.labels for one in valid for reading in one.readings)
    calls = (
        model.classify([prompts[index] for index in indices], replace(config, labels=labels))
        for labels, indices in groups.items()
    )
    results = iter(in_order(groups, calls))
    return [
        _attempt(_answered, model, one, results) if isinstance(one, Prepared) else one
        for one in prepared
    ]


def _answered(
    model: TextModel, prepared: Prepared, results: Iterator[ClassifyResult]
) -> tuple[list[Answer], Usage]:
    own_results = [*islice(results, len(prepared.prompts))]  # all: the next request's follow
    answers = prepared.answers(own_results)
    return answers, Usage(token_count(model, prepared.prompts), 0, len(answers))


def _attempt(function: Callable[..., T], *arguments: object) -> T | Exception:
    """Return the result of a function, or its error, which is that of one request."""
    try:
        return function(*arguments)
    except CoreError as error:
        return error
