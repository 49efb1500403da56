"""Many decision requests run on one loaded model, in as few calls as their labels allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from core.errors import CoreError, UnsupportedOperationError
from core.extensions import Tokenizing
from core.options import GenerateConfig
from core.protocols import TextModel
from core.rendering import Rendering
from core.types import ClassifyResult
from core_wires.questions import Answer, DecisionRequest
from core_wires.reading import Reading, readings
from core_wires.usage import Usage

Asked: TypeAlias = list[tuple[Reading, str]]
"""The readings of a request, each with its prompt."""


def ask(
    model: TextModel,
    requests: Sequence[DecisionRequest],
    config: GenerateConfig | None = None,
    *,
    chat: bool = False,
) -> list[tuple[list[Answer], Usage] | Exception]:
    """Return the answers to each request with their token usage, or its error.

    ``config`` is for ``cancel``, ``timeout`` and variables of the chat template, which formats the
    questions with ``chat``. Questions with the same labels share a call, across requests. Tokens
    are 0 if the model does not expose its tokenizer.
    """
    config = config or GenerateConfig()
    render = Rendering(model, config, labels=True) if isinstance(model, Tokenizing) else None
    asked = [_asked(model, request, render, chat) for request in requests]
    every = [one for each in asked if not isinstance(each, Exception) for one in each]
    found = iter(_results(model, every, config))
    return [
        each if isinstance(each, Exception) else _answered(model, each, found) for each in asked
    ]


def _asked(
    model: TextModel, request: DecisionRequest, render: Rendering | None, chat: bool
) -> Asked | Exception:
    try:
        return [(one, _prompt(model, one, render, chat)) for one in readings(request)]
    except CoreError as error:  # a chat template that refuses it, or a model without one
        return error


def _prompt(model: TextModel, one: Reading, render: Rendering | None, chat: bool) -> str:
    if not chat:
        return one.as_text()
    if render is None:
        raise UnsupportedOperationError("chat templates", type(model).__name__, ())
    return render(one.as_messages(), one.opening)


def _results(model: TextModel, asked: Asked, config: GenerateConfig) -> list[ClassifyResult]:
    """Return the results in the order of the prompts, with one call per set of labels."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, (one, _) in enumerate(asked):
        groups.setdefault(one.labels, []).append(place)
    found: dict[int, ClassifyResult] = {}
    for labels, places in groups.items():
        prompts = [asked[place][1] for place in places]
        results = model.classify(prompts, replace(config, labels=labels))
        found.update(zip(places, results, strict=True))
    return [found[place] for place in range(len(asked))]


def _answered(
    model: TextModel, asked: Asked, found: Iterator[ClassifyResult]
) -> tuple[list[Answer], Usage] | Exception:
    results = [next(found) for _ in asked]  # all of them: the next request's stand behind
    try:
        pairs = zip(asked, results, strict=True)
        answers = [one.answer(result) for (one, _), result in pairs]
    except CoreError as error:
        return error
    read = 0
    if isinstance(model, Tokenizing):
        read = sum(len(model.encode(prompt)) for _, prompt in asked)
    return answers, Usage(read, 0, len(answers))
