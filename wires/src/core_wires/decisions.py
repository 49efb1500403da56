"""OpenAI's decisions, ``POST /v1/decisions``: requests with questions about an input, and answers.

Source: ``openai`` 3.57.0, ``types/decision_create_params.py`` and ``types/decision.py``. Nothing
is added to the answers, which do not allow extensions; a requested ``x_reading`` of letters is
echoed.
"""

from __future__ import annotations

from collections.abc import Sequence

from core_wires import content
from core_wires.errors import OPENAI
from core_wires.questions import (
    Answer,
    Choice,
    ChoiceAnswer,
    DecisionRequest,
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

MAX_QUESTIONS, MAX_OPTIONS, MAX_LEVELS = 400, 255, 255
"""Maximum levels: the API has no limit; this one equals the limit of options."""
_TOP = {
    *("model", "input", "questions"),
    # These steer caches and abuse reports of OpenAI's, and change no answer.
    *("safety_identifier", "prompt_cache_key", "prompt_cache_options"),
}
_MESSAGE = {"type", "role", "content", "phase", "id", "status"}
_ROLES = ("user", "developer", "system", "assistant")
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_OUTPUTS = {f"{call}_output" for call in _CALLS}
_CALL_FIELDS = {"type", "call_id", "name", "id", "namespace", "status"}


def read(body: object) -> DecisionRequest:
    """Return the request of a body that was parsed. Raises `WireError`: 400, with ``error``."""
    request = bounded(body, OPENAI)
    request.only(_TOP)
    questions = request.need("questions")
    items = questions.items()
    questions.counted(len(items), "questions", 1, MAX_QUESTIONS)
    parsed = tuple(_question(question) for question in items)
    return DecisionRequest(
        wire="decisions",
        model=request.need("model").text(),
        state=_state(request.need("input")),
        questions=parsed,
        reading=content.reading(request, parsed),
    )


# --------------------------------------------------------------------------- the input


def _state(value: Value) -> str:
    """Return plain text unchanged; items as "role: text", without roles if all are the user's."""
    if isinstance(value.data, str):
        return value.data
    items = value.items()
    if not items:
        raise value.wrong("The input has no items.", "too_short")
    calls: set[str] = set()
    turns = [_item(item, calls) for item in items]
    if len(turns) == 1 and turns[0][0] == "user":
        return turns[0][1]
    return "\n".join(f"{role}: {text}" for role, text in turns)


def _item(item: Value, calls: set[str]) -> tuple[str, str]:
    """Return the role and the text of an item. ``calls`` are the ids for outputs."""
    kind = item.optional("type", Value.text, "message")
    if kind == "message":
        item.only(_MESSAGE)
        role = item.need("role")
        if role.text() not in _ROLES:
            raise role.wrong(f"This must be one of {', '.join(_ROLES)}.")
        return role.text(), content.parts(item.need("content"))

    # Calls of a model and their outputs: an output needs an earlier call.
    if kind in _CALLS:
        item.only({*_CALL_FIELDS, _CALLS[kind]})
        calls.add(item.need("call_id").text())
        return f"call of {item.need('name').text()}", item.need(_CALLS[kind]).text()
    if kind in _OUTPUTS:
        item.only({*_CALL_FIELDS, "output"})
        call = item.need("call_id")
        if call.text() not in calls:
            raise call.wrong("No call before this output has this call_id.")
        return "output", content.parts(item.need("output"))

    raise item.wrong(f"Items of type {kind!r:.60} are not supported.", "unsupported_content")


# --------------------------------------------------------------------------- the questions


def _question(question: Value) -> Question:
    kind = question.need("type").text()
    instructions = content.parts(question.need("instructions"))
    name = question.optional("name", Value.text, None)

    if kind == "predicate":
        question.only({"type", "name", "instructions"})
        if not instructions.strip():
            raise question.wrong("A predicate requires non-empty instructions.", "missing")
        return Predicate(instructions, name=name)
    if kind == "choice":
        question.only({"type", "name", "instructions", "choices"})
        return Choice(instructions, _options(question.need("choices")), name)
    if kind == "score":
        question.only({"type", "name", "instructions", "levels"})
        return Score(instructions, _levels(question.need("levels")), name)
    message = f"Unknown type {kind!r:.60}: expected predicate, choice, or score."
    raise question.need("type").wrong(message)


def _options(choices: Value) -> tuple[Option, ...]:
    items = choices.items()
    choices.counted(len(items), "choices", 2, MAX_OPTIONS)
    seen: set[tuple[type, str | bool]] = set()
    options = []
    for item in items:
        item.only({"value", "description"})
        value = item.need("value")
        option = value.flag() if isinstance(value.data, bool) else value.text()
        if (type(option), option) in seen:
            raise value.wrong("This value is a duplicate; each must be unique.")
        seen.add((type(option), option))
        options.append(Option(option, item.optional("description", Value.text, "")))
    return tuple(options)


def _levels(levels: Value) -> tuple[Level, ...]:
    items = levels.items()
    levels.counted(len(items), "levels", 2, MAX_LEVELS)
    for item in items:
        item.only({"label", "description"})
    return tuple(
        Level(item.need("label").text(), item.optional("description", Value.text, ""))
        for item in items
    )


# --------------------------------------------------------------------------- the answers


def response(
    request: DecisionRequest,
    answers: Sequence[Answer | None],
    *,
    model: str,
    usage: Usage | None = None,
) -> dict[str, object]:
    """Return the body of a 200: the answers in the order of the questions; None for a refusal."""
    usage = usage or Usage()
    pairs = zip(request.questions, answers, strict=True)
    body: dict[str, object] = {
        "model": model,
        "answers": [_answer(question, answer) for question, answer in pairs],
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.total_tokens,
        },
    }
    return body if request.reading == "labels" else body | {"x_reading": request.reading}


def _answer(question: Question, answer: Answer | None) -> dict[str, object]:
    match question, answer:
        case _, None:
            return {"type": "refusal", "name": question.name}
        case Predicate(), PredicateAnswer():
            return {
                "type": "predicate",
                "name": question.name,
                "probability": answer.probability,
            }
        case Choice(options=options), ChoiceAnswer():
            pairs = zip(options, answer.probabilities, strict=True)
            return {
                "type": "choice",
                "name": question.name,
                "choice": answer.choice,
                "probabilities": [{"value": o.value, "probability": p} for o, p in pairs],
                "confidence": answer.confidence,
            }
        case Score(levels=levels), ScoreAnswer():
            steps = enumerate(zip(levels, answer.probabilities, strict=True))
            return {
                "type": "score",
                "name": question.name,
                "score": answer.score,
                "probabilities": [
                    {"value": n, "label": level.label, "probability": p} for n, (level, p) in steps
                ],
                "confidence": answer.confidence,
            }
    raise TypeError(f"{type(answer).__name__} is not an answer to a {type(question).__name__}.")
