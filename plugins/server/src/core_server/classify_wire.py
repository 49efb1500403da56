"""A wire of core's own, ``/v1/classify``: many texts, one task, a decision for each.

The body is an object: ``texts``, ``labels``, and where wanted ``model``, ``template`` (with
``{text}``), ``mode``, ``threshold`` and ``level``, as in `core.Task`. Or it is lines of JSON: the
same object without ``texts`` in the first, and a text in each line behind it, as a string or as an
object with ``text``. An answer is `core.Decision.to_dict`, for each text one, in their order; with
``show_prompts`` it has ``prompts``: what the model read, for each label one with the mode "many".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from core.errors import CoreError
from core.tasks.decision import Decision
from core.tasks.task import Mode, Task
from core.wires.errors import OPENAI
from core.wires.usage import Usage
from core.wires.values import Value, bounded, parsed

Level = Literal["raw", "L0"]
_FIELDS = {"model", "labels", "template", "mode", "threshold", "level", "show_prompts"}
_TEMPLATE = "{text} Topic:"  # the wording of `core.wires.reading`, in which the labels are not
_TOLD = {"label", "labels", "probabilities", "level", "confidence", "margin", "label_mass"}


@dataclass(frozen=True, slots=True)
class ClassificationRequest:
    """What is asked of each of the texts; ``model`` is "" for the server's first.

    ``level`` "L0" takes off what `core.Task.fit_prior` does by itself; an answer has its own level.
    """

    model: str
    task: Task
    level: Level = "raw"
    show_prompts: bool = False
    texts: tuple[str, ...] = ()


def read(body: object) -> ClassificationRequest:
    """The request of a body that was parsed. Raises `WireError`: 400, with ``error``."""
    request = bounded(body, OPENAI)
    request.only({*_FIELDS, "texts"})
    texts = tuple(text.text() for text in request.need("texts").items())
    return ClassificationRequest(*_asked(request), texts)


def read_head(line: bytes) -> ClassificationRequest:
    """The request of the first line of a body of lines. Raises `WireError`."""
    request = bounded(parsed(line, OPENAI), OPENAI)
    request.only(_FIELDS)
    return ClassificationRequest(*_asked(request))


def read_text(line: bytes) -> str:
    """The text of a line behind the first. Raises `WireError`."""
    value = bounded(parsed(line, OPENAI), OPENAI)
    return (value.need("text") if isinstance(value.data, Mapping) else value).text()


def answer(decision: Decision, prompts: Sequence[str] = ()) -> dict[str, object]:
    """What a client is told of one text: the decision, without what its task does not have."""
    told = decision.to_dict()
    shown: dict[str, object] = {"prompts": prompts} if prompts else {}
    if decision.error is not None:
        return {"error": told["error"]} | shown
    kept = _TOLD | {name for name in ("value", "spread", "parts") if told[name]}
    refused = {} if decision.accepted else {"accepted": False}
    return {name: value for name, value in told.items() if name in kept} | refused | shown


def response(decisions: list[dict[str, object]], *, model: str, usage: Usage) -> dict[str, object]:
    """The body of a 200."""
    counted = {"prompt_tokens": usage.input_tokens, "total_tokens": usage.total_tokens}
    details = {"prompt_tokens_details": {"cached_tokens": usage.cached_tokens}}
    return {"object": "list", "model": model, "data": decisions, "usage": counted | details}


def _asked(request: Value) -> tuple[str, Task, Level, bool]:
    labels = tuple(label.text() for label in request.need("labels").items())
    model, template = request.get("model"), request.get("template")
    mode, level, threshold = map(request.get, ("mode", "level", "threshold"))
    try:
        task = Task(
            template.text() if template else _TEMPLATE,
            labels,
            mode=cast("Mode", mode.text()) if mode else "one",
            threshold=threshold.number() if threshold else None,
        )
    except CoreError as error:
        raise request.wrong(str(error)) from None
    name = level.text() if level else "raw"
    if level is not None and name not in ("raw", "L0"):
        raise level.wrong("A request is answered raw or at L0; L1 takes a task with gold labels.")
    shown = request.get("show_prompts")
    asked = model.text() if model else ""
    return asked, task, cast("Level", name), shown is not None and shown.flag()
