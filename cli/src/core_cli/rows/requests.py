"""Rows that are requests of OpenAI's batch files, each with its options."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

from core.errors import CoreError, UnsupportedOperationError
from core.extensions import Tokenizing
from core.kit.support import compares_sentences
from core.options import GenerateConfig
from core.protocols import Capability
from core.rendering import Rendering
from core.types import BatchResult, ClassifyResult
from core_cli.reading.json_rows import FORM
from core_cli.reading.row import Row
from core_cli.values import Answer, Answered, Cost, Kind, Result
from core_wires import batch, completions
from core_wires.decision_calls import grouped, in_order, prepare
from core_wires.errors import refusal
from core_wires.generation import GenerationRequest
from core_wires.questions import DecisionRequest
from core_wires.usage import Usage, token_count

if TYPE_CHECKING:
    from core_cli.loading import Loaded
    from core_cli.values import Ask

__all__ = ["FORM", "RequestAsker"]


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt of a request, and its options."""

    text: str
    config: GenerateConfig


@dataclass(frozen=True, slots=True)
class _Request:
    """A row with its prompts, and the function from results to the body of the answer."""

    row: Row
    line: batch.Line
    prompts: tuple[_Prompt, ...] = ()
    body: Callable[[list[Result]], dict[str, object]] | None = None
    error: Exception | None = None


class RequestAsker:
    """An asker of blocks of requests, like `core_cli.rows.asker.Asker` for other rows.

    ``generate`` is the model's operation, ``defaults`` are options for requests that lack them.
    ``created`` is the time in the answers, in seconds since 1970: the modification time of the
    input, so that a resumed job writes the same bytes.
    """

    def __init__(
        self, loaded: Loaded, generate: Ask, defaults: GenerateConfig, chat: bool, created: int
    ) -> None:
        self.kind = Kind(_unread, _refused, ("status_code",), _status, _NAMES, _counted)
        self.backend = loaded.backend.name
        self._model, self._generate = loaded.model, generate
        self._defaults, self._chat, self._created = defaults, chat, created
        self._labels = Capability.LABELS in loaded.capabilities

    def answered(
        self, block: Sequence[Row], cancel: threading.Event
    ) -> tuple[list[Answered], Cost]:
        """Return the rows of a block with their answers, in order.

        Requests of one kind run together.
        """
        requests = [self._request(row) for row in block]
        prompts = [prompt for request in requests for prompt in request.prompts]
        results = iter(self._results(prompts, cancel))
        answered_rows = [self._answered(r, [next(results) for _ in r.prompts]) for r in requests]
        return answered_rows, Cost(asked=len(prompts))

    def recall(self, block: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Do nothing: no answer depends on earlier blocks."""

    def forget(self) -> None:
        """Do nothing."""

    def prompt(self, row: Row) -> str | Exception:
        """Return the first prompt of a request, or its error."""
        request = self._request(row)
        error = request.error or request.line.error
        return error if error is not None else request.prompts[0].text

    @property
    def variables(self) -> Mapping[str, object]:
        """The variables that the chat template was given for decisions until now."""
        return self.rendering.variables if "rendering" in vars(self) else {}

    # ------------------------------------------------------------------ from row to prompts

    def _request(self, row: Row) -> _Request:
        line = batch.Line(None) if row.error is not None else batch.read(row.fields)
        if row.error is not None or line.request is None:
            return _Request(row, line, error=row.error or line.error)
        try:
            if isinstance(line.request, GenerationRequest):
                return self._generation(row, line, line.request)
            return self._decision(row, line, line.request)
        except CoreError as error:  # the chat template rejects it, or the model has none
            return _Request(row, line, error=error)

    def _generation(self, row: Row, line: batch.Line, request: GenerationRequest) -> _Request:
        chat = request.kind == "chat"
        config = request.config(self._defaults)
        render = self._tokenizing().render_chat if chat else None
        text = request.prompt if render is None else render(request.messages, config)
        id = batch.stable_id("chatcmpl" if chat else "cmpl", row.line, line.custom_id)

        def body(results: list[Result]) -> dict[str, object]:
            [result] = results
            assert isinstance(result, BatchResult)
            usage = Usage(token_count(self._model, [text]), 0, len(result.tokens))
            facts = {"id": id, "created": self._created, "model": request.model}
            return completions.response(request, result, **facts, usage=usage)  # type: ignore[arg-type]

        return _Request(row, line, (_Prompt(text, config),), body)

    def _decision(self, row: Row, line: batch.Line, request: DecisionRequest) -> _Request:
        if not self._labels:
            raise UnsupportedOperationError("decisions", self.backend, ())
        sentences = compares_sentences(self._model)
        render = self.rendering if self._chat and not sentences else None
        prepared = prepare(request, render, sentences=sentences)
        timeout = self._defaults.timeout
        prompts = tuple(
            _Prompt(text, GenerateConfig(labels=reading.labels, timeout=timeout))
            for text, reading in zip(prepared.prompts, prepared.readings, strict=True)
        )

        def body(results: list[Result]) -> dict[str, object]:
            answers = prepared.answers(cast("list[ClassifyResult]", results))
            usage = Usage(token_count(self._model, prepared.prompts), 0, len(answers))
            return batch.decided(request, answers, model=request.model, usage=usage)

        return _Request(row, line, prompts, body)

    @cached_property
    def rendering(self) -> Rendering:
        """Function from conversations to the prompts of decisions."""
        return Rendering(self._tokenizing(), self._defaults, labels=True)

    # ------------------------------------------------------------------ from results to rows

    def _results(self, prompts: Sequence[_Prompt], cancel: threading.Event) -> list[Result]:
        """Return the results in the order of the prompts; equal options share a call."""
        groups = grouped(prompt.config for prompt in prompts)
        results: list[Sequence[Result]] = []
        for config, indices in groups.items():
            call = self._model.classify if config.labels else self._generate
            texts = [prompts[index].text for index in indices]
            results.append(call(texts, replace(config, cancel=cancel)))
        return in_order(groups, results)

    def _answered(self, request: _Request, results: list[Result]) -> Answered:
        id = batch.stable_id("req", request.row.line, request.line.custom_id)
        error = request.error
        if error is None and request.body is not None:
            try:
                body = request.body(results)
            except CoreError as failed:
                error = failed
            else:
                return Answered(request.row, batch.answered(request.line.custom_id, body, id=id))

        # A line that cannot be read has no API whose error format it could use.
        assert error is not None
        if request.line.custom_id is None and request.row.error is not None:
            answer = batch.unanswered(None, "invalid_json_line", str(error), id=id)
        else:
            error_body = refusal(batch.dialect(request.line.url), error)
            answer = batch.refused(request.line.custom_id, error_body, id=id)
        return Answered(request.row, answer, error)

    def _tokenizing(self) -> Tokenizing:
        if isinstance(self._model, Tokenizing):
            return self._model
        raise UnsupportedOperationError("chat templates", self.backend, ())


_NAMES = frozenset(("id", "custom_id", "response", "error"))


def _unread(result: Result) -> Answer:
    raise TypeError("A request is answered in its own API format.")


def _refused(error: Exception) -> Answer:
    return batch.unanswered(None, "error", str(error), id="")


def _status(answer: Answer) -> tuple[object, ...]:
    response = answer["response"]
    return (response["status_code"] if isinstance(response, dict) else None,)


def _counted(answer: Answer) -> Answer:
    """Return the answer for the summary; a status above 200 is a failure."""
    [status] = _status(answer)
    failed = None if status == 200 else {"type": f"status {status}", "message": ""}
    return {"error": failed if answer["error"] is None else {"type": "unread", "message": ""}}
