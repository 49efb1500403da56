"""The worker's main loop: one request after another, each with its last answer."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Protocol

from core_mlx_lm_bridge.child.failures import Failure
from core_mlx_lm_bridge.child.listener import Listener
from core_mlx_lm_bridge.child.wire import Answers, take_over
from core_mlx_lm_bridge.protocol import (
    VERSION,
    Answer,
    Chat,
    Done,
    Error,
    Generate,
    Info,
    Load,
    Ok,
    Request,
    TokenAnswer,
)


class WorkerEngine(Protocol):
    """An engine that answers requests; its exceptions become `Error` answers."""

    def load(self, request: Load) -> Ok:
        """Load a model in place of the previous one."""
        ...

    def info(self) -> Ok:
        """Return the facts of the loaded model."""
        ...

    def generate(
        self, request: Generate | Chat, cancelled: Callable[[], bool]
    ) -> Iterator[TokenAnswer | Done]:
        """Yield any number of tokens, then `Done`; polls ``cancelled`` at each."""
        ...


def serve(engine: WorkerEngine, requests: int, answers: int) -> None:
    """Answer on these descriptors until the process is ended by `Quit` or by EOF."""
    requests, answers = take_over(requests, answers)
    way_out = Answers(answers)
    listener = Listener(requests, way_out)
    listener.start()
    while True:
        request = listener.requests.get()
        for answer in _answered(engine, request, listener):
            way_out.send(answer)
        listener.finish(request.id)


def _answered(engine: WorkerEngine, request: Request, listener: Listener) -> Iterator[Answer]:
    try:
        if isinstance(request, (Generate, Chat)):
            yield from engine.generate(request, lambda: listener.is_cancelled(request.id))
        elif isinstance(request, Load):
            yield _loaded(engine, request)
        elif isinstance(request, Info):
            yield _about(engine.info(), request)
    except Failure as failure:
        yield failure.answer(request.id)
    except Exception as error:  # noqa: BLE001 - the caller waits for an answer in any case
        traceback.print_exc()
        yield Error(id=request.id, error=type(error).__name__, message=str(error))


def _loaded(engine: WorkerEngine, request: Load) -> Ok:
    if request.version != VERSION:
        raise Failure(
            "ProtocolMismatchError",
            f"The caller has version {request.version} of the protocol, and the worker has version "
            f"{VERSION}. Install the same version of infercore-mlx-lm-bridge for both.",
        )
    return _about(engine.load(request), request)


def _about(facts: Ok, request: Request) -> Ok:
    facts.id, facts.version = request.id, VERSION
    return facts
