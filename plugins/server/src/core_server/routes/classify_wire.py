"""core's API ``/v1/classify``: many texts, one task, a decision for each.

The body is an object: ``texts``, ``labels``, and optionally ``model``, ``template`` (with
``{text}``), ``mode``, ``threshold``, ``label_sentence`` and ``level``, as in `core_tasks.Task`;
``task``, the name of a task or head that the server has, replaces all of these but ``model``. Or
it is lines of JSON: first the same object without ``texts``, then a text in each line, as a string
or as an object with ``text``. Each text has one answer, a `core_tasks.Decision.to_dict`, in input
order; with ``show_prompts`` it has ``prompts``, which the model read: one, or one for each label in
the mode "many". A text that is empty or white space has an error, unless ``allow_blank`` is set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from core.errors import CoreError
from core.options import LABEL_SENTENCE
from core_server.questions import NamedQuestion, Question
from core_tasks.decision import Decision
from core_tasks.task import Mode, Task
from core_wires.errors import OPENAI
from core_wires.usage import Usage
from core_wires.values import Value, bounded, parsed

CalibrationLevel = Literal["raw", "content-free"]
_SHARED = {"model", "task", "show_prompts", "allow_blank"}
_OWN = ("labels", "template", "mode", "threshold", "level", "label_sentence")
_TEMPLATE = "{text} Topic:"  # the wording of `core_wires.reading`, without the labels
_ALWAYS = {"label", "labels", "probabilities", "level", "confidence", "margin", "label_mass"}


@dataclass(frozen=True, slots=True)
class ClassificationRequest:
    """A task for a list of texts; ``model`` is "" for the server's first.

    ``level`` "content-free" subtracts a prior, as `core_tasks.Task.fit_prior` does by default; an
    answer has its own level. ``usual`` is True for a request without a template.
    """

    model: str
    task: Question
    level: CalibrationLevel = "raw"
    show_prompts: bool = False
    allow_blank: bool = False
    texts: tuple[str, ...] = ()
    usual: bool = False

    def task_of(self, *, sentences: bool) -> Question:
        """Return the task for a model, with its ``usual`` template: the text for ``sentences``."""
        if isinstance(self.task, Task) and self.usual and sentences:
            return replace(self.task, template="{text}")
        return self.task


Named = Mapping[str, NamedQuestion]


def read(body: object, named: Named) -> ClassificationRequest:
    """Return the request in a parsed body; ``named`` are the server's tasks and heads.

    Raises `WireError`: 400, or 404 for an unknown name, with ``error``.
    """
    request = bounded(body, OPENAI)
    request.only({*_SHARED, *_OWN, "texts"})
    texts = tuple(text.text() for text in request.need("texts").items())
    return _request(request, named, texts)


def read_head(line: bytes, named: Named) -> ClassificationRequest:
    """Return the request in the first line of a body of lines. Raises like `read`."""
    request = bounded(parsed(line, OPENAI), OPENAI)
    request.only({*_SHARED, *_OWN})
    return _request(request, named)


def read_text(line: bytes) -> str:
    """Return the text of a line after the first. Raises `WireError`."""
    value = bounded(parsed(line, OPENAI), OPENAI)
    return (value.need("text") if isinstance(value.data, Mapping) else value).text()


def answer(decision: Decision, prompts: Sequence[str] = ()) -> dict[str, object]:
    """Return the answer for one text: the decision, without fields that its task does not use."""
    fields = decision.to_dict()
    extras: dict[str, object] = {"prompts": prompts} if prompts else {}
    if decision.error is not None:
        return {"error": fields["error"]} | extras
    names = _ALWAYS | {name for name in ("value", "spread", "parts") if fields[name]}
    if not decision.accepted:
        extras = {"accepted": False} | extras
    return {name: value for name, value in fields.items() if name in names} | extras


def response(decisions: list[dict[str, object]], *, model: str, usage: Usage) -> dict[str, object]:
    """Return the body of a 200."""
    counted = {"prompt_tokens": usage.input_tokens, "total_tokens": usage.total_tokens}
    details = {"prompt_tokens_details": {"cached_tokens": usage.cached_tokens}}
    return {"object": "list", "model": model, "data": decisions, "usage": counted | details}


def _request(request: Value, named: Named, texts: tuple[str, ...] = ()) -> ClassificationRequest:
    model = request.optional("model", Value.text, "")
    options = (
        request.optional("show_prompts", Value.flag, False),
        request.optional("allow_blank", Value.flag, False),
        texts,
    )
    name = request.get("task")
    if name is not None:
        question = _named(request, name, named)
        return ClassificationRequest(model or question.model, question.question, "raw", *options)
    level: CalibrationLevel = request.optional("level", _level, "raw")
    usual = request.get("template") is None
    return ClassificationRequest(model, _task(request), level, *options, usual)


def _named(request: Value, name: Value, named: Named) -> NamedQuestion:
    question = named.get(name.text())
    if question is None:
        known = f"Served: {', '.join(map(repr, named))}." if named else "None is served."
        message = f"task: Unknown task {name.text()!r:.200}. {known:.1000}"
        raise OPENAI.failed(404, "task_not_found", message)
    for own in _OWN:
        value = request.get(own)
        if value is not None:
            raise value.wrong(f"The task {question.name!r:.200} sets this. Remove it.")
    return question


def _task(request: Value) -> Task:
    labels = tuple(label.text() for label in request.need("labels").items())
    try:
        return Task(
            request.optional("template", Value.text, _TEMPLATE),
            labels,
            mode=cast("Mode", request.optional("mode", Value.text, "one")),
            threshold=request.optional("threshold", Value.number, None),
            label_sentence=request.optional("label_sentence", Value.text, LABEL_SENTENCE),
        )
    except CoreError as error:
        raise request.wrong(str(error)) from None


def _level(value: Value) -> CalibrationLevel:
    if value.text() not in get_args(CalibrationLevel):
        raise value.wrong(
            "Expected raw or content-free. Other methods need a task that the server has: see task."
        )
    return cast("CalibrationLevel", value.text())
