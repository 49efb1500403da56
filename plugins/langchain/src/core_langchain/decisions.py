"""`CoreDecisions`: typed questions, answered by a local model's label probabilities, in batches."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

from langchain_core.decisions import BaseDecisionModel, ClassifierRequest, ClassifierResponse
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import get_config_list
from pydantic import ConfigDict, Field

import core
from core.aio.calls import in_thread
from core.api import shared_model
from core_langchain.chat import LoadOptions
from core_langchain.messages import plain
from core_wires import systemone
from core_wires.decision_calls import decide
from core_wires.questions import DecisionRequest

Response: TypeAlias = ClassifierResponse | Exception
"""The response to a request, or its error."""


class CoreDecisions(BaseDecisionModel):
    """A runnable that answers questions by the probabilities of their answers on a local model.

    ``model``, ``loaded``, ``backend`` and ``load_options`` are as in `ChatCore`. ``chat`` uses the
    model's chat template. ``timeout`` is in seconds, for each call of the model.

    ``batch`` and ``abatch`` run all their requests together; with ``return_exceptions``, a failed
    request has its own exception. Probabilities are raw; ``confidence`` is defined in
    `core_wires.questions`.
    """

    model_config = ConfigDict(extra="forbid")

    loaded: Any = Field(default=None, exclude=True, repr=False)
    backend: str = ""
    load_options: LoadOptions = None
    chat: bool = False
    timeout: float | None = None

    @property
    def _provider(self) -> str:
        return "core"

    def _classify(self, state: Any, questions: dict[str, Any]) -> ClassifierResponse:
        return _only(self._answered([{"state": state, "questions": questions}]))

    async def _aclassify(self, state: Any, questions: dict[str, Any]) -> ClassifierResponse:
        return _only(await self._aanswered([{"state": state, "questions": questions}]))

    def batch(
        self,
        inputs: list[ClassifierRequest],
        config: Any = None,
        *,
        return_exceptions: bool = False,
        **_: Any,
    ) -> list[ClassifierResponse]:
        """Return the responses to all requests, with one call per set of labels."""
        options: dict[str, Any] = {"return_exceptions": return_exceptions, "run_type": "llm"}
        configs = self._configs(config, len(inputs))
        return self._batch_with_config(self._answered, inputs, configs, **options)

    async def abatch(
        self,
        inputs: list[ClassifierRequest],
        config: Any = None,
        *,
        return_exceptions: bool = False,
        **_: Any,
    ) -> list[ClassifierResponse]:
        """Return the same, awaited; a cancelled task ends the work."""
        options: dict[str, Any] = {"return_exceptions": return_exceptions, "run_type": "llm"}
        configs = self._configs(config, len(inputs))
        return await self._abatch_with_config(self._aanswered, inputs, configs, **options)

    def _configs(self, config: Any, length: int) -> list[RunnableConfig]:
        return [self._traced_config(one) for one in get_config_list(config, length)]

    async def _aanswered(self, requests: Sequence[ClassifierRequest]) -> list[Response]:
        cancel = threading.Event()
        return await in_thread(lambda: self._answered(requests, cancel), cancel.set)

    def _answered(
        self, requests: Sequence[ClassifierRequest], cancel: core.CancelToken | None = None
    ) -> list[Response]:
        model = shared_model(
            self.model if self.loaded is None else self.loaded, self.backend, self.load_options
        )
        config = core.GenerateConfig(cancel=cancel, timeout=self.timeout)
        read = [self._read(request) for request in requests]
        sound = [item for item in read if not isinstance(item, Exception)]
        results = iter(decide(model, sound, config, chat=self.chat))
        return [
            item if isinstance(item, Exception) else self._response(item, request, next(results))
            for item, request in zip(read, requests, strict=True)
        ]

    def _read(self, request: ClassifierRequest) -> DecisionRequest | Exception:
        try:
            questions = {name: plain(question) for name, question in request["questions"].items()}
            state = plain(request["state"])
            return systemone.read({"model": self.model, "state": state, "questions": questions})
        except core.RequestError as error:
            return error

    def _response(self, read: DecisionRequest, request: ClassifierRequest, result: Any) -> Response:
        if isinstance(result, Exception):
            return result
        answers, usage = result
        body: dict[str, Any] = systemone.response(read, answers, model=self.model, usage=usage)
        for name, question in request["questions"].items():
            if question.type == "score":  # its levels as they were given, structured or not
                body["answers"][name]["legend"] = dict(enumerate(question.criteria))
        return ClassifierResponse.model_validate(body)


def _only(responses: list[Response]) -> ClassifierResponse:
    [response] = responses
    if isinstance(response, Exception):
        raise response
    return response
