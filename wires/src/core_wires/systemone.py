"""System One, ``POST /v1/systemone``: questions by their ids about a state, in and out.

Sources: https://api.typesafe.ai/openapi.json as ``typesafe-sdk`` 0.7.5 has it, and SPEC.md of
jevcompat 0.1. Extensions of answers begin with ``x_``: ``x_label_mass``, ``x_margin``,
``x_logprobs``, ``x_level`` and ``x_reading`` (`core_wires.questions.Evidence`); a request may have
``x_reading``, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from core.records import number
from core_wires import content
from core_wires.errors import SYSTEM_ONE
from core_wires.questions import (
    Answer,
    Choice,
    ChoiceAnswer,
    DecisionRequest,
    Evidence,
    Level,
    Option,
    Predicate,
    PredicateAnswer,
    Question,
    Score,
    ScoreAnswer,
)
from core_wires.usage import Usage
from core_wires.values import Value, bounded

MAX_QUESTIONS, MAX_OPTIONS, MAX_LEVELS = 400, 255, 10
ALIASES = frozenset({"jev-latest"})
"""Names of models that clients send by default: every server accepts them."""
_QUESTION_FIELDS = {"type", "instructions", "criteria"}
_ASSETS = ("assets", "images")


def read(body: object) -> DecisionRequest:
    """Return the request of a body that was parsed. Raises `WireError`: 422, with ``detail``."""
    request = bounded(body, SYSTEM_ONE)
    request.fields()
    for name in _ASSETS:
        assets = request.get(name)
        if assets is not None and assets.data not in ({}, [], ""):
            raise assets.wrong("Images are not supported: only text is.", "unsupported")
    questions = request.need("questions")
    questions.counted(len(questions.fields()), "questions", 1, MAX_QUESTIONS)
    parsed = tuple(_question(name, value) for name, value in questions.named())
    return DecisionRequest(
        wire="systemone",
        model=request.need("model").text(),
        state=content.described(request.need("state")),
        questions=parsed,
        reading=content.reading(request, parsed),
    )


def _question(name: str, question: Value) -> Question:
    if not name:
        raise question.wrong("A question needs an id that is not empty.", "string_too_short")
    kind = question.need("type").text()
    if kind not in ("noul", "choice", "score"):
        message = f"Unknown type {kind!r:.60}: expected noul, choice, or score."
        raise question.need("type").wrong(message, "union_tag_invalid")
    question.only(_QUESTION_FIELDS)
    instructions = question.optional("instructions", content.described, "")
    if kind == "noul":
        return _noul(question, instructions, name)
    criteria = question.need("criteria")
    if kind == "choice":
        return Choice(instructions, _options(criteria), name)
    return Score(instructions, _levels(criteria), name)


def _noul(question: Value, instructions: str, name: str) -> Predicate:
    true, false = question.optional("criteria", _sides, ("", ""))
    if not any(text.strip() for text in (instructions, true, false)):
        raise question.wrong("It needs instructions or a criterion.", "missing")
    return Predicate(instructions, true, false, name)


def _sides(criteria: Value) -> tuple[str, str]:
    criteria.only({"true", "false"})
    true = criteria.optional("true", content.described, "")
    return true, criteria.optional("false", content.described, "")


def _options(criteria: Value) -> tuple[Option, ...]:
    criteria.counted(len(criteria.fields()), "options", 2, MAX_OPTIONS)
    names = criteria.fields()
    return tuple(Option(name, criteria.optional(name, content.described, "")) for name in names)


def _levels(criteria: Value) -> tuple[Level, ...]:
    levels = criteria.items()
    criteria.counted(len(levels), "levels", 2, MAX_LEVELS)
    return tuple(Level(content.described(level)) for level in levels)


def serves(model: str, names: Collection[str]) -> bool:
    """Return whether a request for this model is meant for a server that has these."""
    return model in names or model in ALIASES


def response(
    request: DecisionRequest, answers: Sequence[Answer], *, model: str, usage: Usage | None = None
) -> dict[str, object]:
    """Return the body of a 200: an answer for each question, under its id."""
    usage = usage or Usage()
    pairs = zip(request.questions, answers, strict=True)
    return {
        "model": model,
        "answers": {question.name: _answer(question, answer) for question, answer in pairs},
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "x_cached_tokens": usage.cached_tokens,
        },
    }


def _answer(question: Question, answer: Answer) -> dict[str, object]:
    match question, answer:
        case Predicate(), PredicateAnswer():
            body: dict[str, object] = {"type": "noul", "noul": answer.probability}
            return body | _extensions(answer.evidence, ("true", "false"))
        case Choice(options=options), ChoiceAnswer():
            names = [str(option.value) for option in options]
            return {
                "type": "choice",
                "choice": answer.choice,
                "probabilities": dict(zip(names, answer.probabilities, strict=True)),
                "confidence": answer.confidence,
            } | _extensions(answer.evidence, names)
        case Score(levels=levels), ScoreAnswer():
            indices = [str(index) for index in range(len(levels))]
            return {
                "type": "score",
                "score": answer.score,
                "legend": {str(n): level.label for n, level in enumerate(levels)},
                "probabilities": dict(zip(indices, answer.probabilities, strict=True)),
                "confidence": answer.confidence,
            } | _extensions(answer.evidence, indices)
    raise TypeError(f"{type(answer).__name__} is not an answer to a {type(question).__name__}.")


def _extensions(evidence: Evidence, names: Sequence[str]) -> dict[str, object]:
    """Return the extensions of the answer, without values that the backend did not return."""
    extensions: dict[str, object] = {"x_level": evidence.level, "x_reading": evidence.reading}
    if evidence.label_mass is not None:
        extensions["x_label_mass"] = number(evidence.label_mass)
    if evidence.margin is not None:
        extensions["x_margin"] = number(evidence.margin)
    if evidence.logprobs is not None:
        extensions["x_logprobs"] = dict(zip(names, map(number, evidence.logprobs), strict=True))
    return extensions
