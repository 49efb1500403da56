"""Checks of a model's life from load to close, and of the resources it frees."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from core.errors import ModelClosedError, UnsupportedOperationError
from core.protocols import Capability, TextModel, TokenStream
from core.types import Token
from core_conformance.checking.applies import usable
from core_conformance.checking.calls import (
    CHAT,
    OPERATIONS,
    PROMPTS,
    call,
    declared,
    elsewhere,
    ending,
    greedy,
    raised,
    same,
    talkative,
    texts,
)
from core_conformance.checking.check import check, must
from core_conformance.checking.subject import Subject
from core_conformance.checking.watching import heard, left_behind

_LITTLE = 2**16  # bytes, which no weights fit into
_EXTENSIONS: dict[Capability, dict[str, Callable[[Any], object]]] = {
    Capability.TOKENIZING: {
        "encode": lambda model: model.encode("a"),
        "decode": lambda model: model.decode([1]),
        "render_chat": lambda model: model.render_chat(CHAT),
    },
    Capability.SUBMITTING: {"submit": lambda model: next(model.submit(PROMPTS[0]))},
    Capability.BATCH_STREAMING: {
        "batch_stream": lambda model: next(model.batch_stream(PROMPTS[:1]))
    },
    Capability.CLASSIFY_STREAMING: {
        "classify_iter": lambda model: next(model.classify_iter(PROMPTS[:1]))
    },
    Capability.SCORING: {"score": lambda model: model.score(PROMPTS[:1], [" b"])},
    Capability.TOKEN_PROMPTS: {
        "generate_tokens": lambda model: model.generate_tokens([[1, 2]], max_tokens=1),
        "stream_tokens": lambda model: next(model.stream_tokens([1, 2], max_tokens=1)),
        "score_tokens": lambda model: model.score_tokens([[1]], [[2]]),
    },
    Capability.HIDDEN_STATES: {"hidden_states": lambda model: model.hidden_states(PROMPTS[:1])},
    Capability.ATTENTION_INSPECTOR: {
        "inspect_attention": lambda model: model.inspect_attention(PROMPTS[0])
    },
    Capability.MEMORY_REPORTING: {
        "memory": lambda model: model.memory(),
        "reset_peak_memory": lambda model: model.reset_peak_memory(),
    },
}


@check("lifecycle.close-twice", "Closing a model twice MUST be fine.")
def close_twice(subject: Subject) -> None:
    model = subject.load()
    model.close()
    error = raised(model.close)
    must(error is None, f"the second close() raised {error!r}: it must do nothing")


@check(
    "lifecycle.use-after-close",
    "Every operation of a closed model MUST raise ModelClosedError.",
)
def use_after_close(subject: Subject) -> None:
    model = subject.load()
    model.close()
    uses = {str(name): _begin(model, name) for name in declared(subject)}
    for capability, calls in _EXTENSIONS.items():
        if subject.declares(capability):
            uses |= {name: _bound(use, model) for name, use in calls.items()}
    for name, use in uses.items():
        error = raised(use)
        must(
            isinstance(error, ModelClosedError),
            f"{name}() of a closed model gave {error or 'an answer'!r}: it must raise "
            "ModelClosedError",
        )


@check(
    "lifecycle.context-manager",
    "`with` MUST give the model itself, close it at the end, and let errors through.",
)
def context_manager(subject: Subject) -> None:
    outer, entered, swallowed = subject.load(), list[TextModel](), True
    try:
        with outer as inner:
            entered.append(inner)
            raise KeyError("the body's own error")
    except KeyError:
        swallowed = False
    must(entered == [outer], "`with model as m` gave another object than the model")
    must(not swallowed, "__exit__ swallows the error of the `with` block: return None")
    must(_is_closed(subject, outer), "the model is still open after its `with` block")


@check(
    "lifecycle.open-stream",
    "A stream whose model is closed MUST end, or raise ModelClosedError, and nothing else.",
    Capability.GENERATE,
)
def open_stream(subject: Subject) -> None:
    model = subject.load()
    running, unread = (model.generate(PROMPTS[0], max_tokens=64) for _ in range(2))
    with suppress(StopIteration):
        next(running)
    model.close()
    _must_be_over(running, "an open stream")
    late = _must_be_over(unread, "a stream that was not begun")
    must(not late, f"a stream that was begun after close() gave {texts(late)}")


@check(
    "lifecycle.other-models",
    "Closing one model MUST NOT touch another of the same files.",
    OPERATIONS,
)
def other_models(subject: Subject) -> None:
    with subject.loaded() as other:
        subject.load().close()
        for name in usable(subject):
            error = raised(_begin(other, name))
            must(error is None, f"after another model was closed, {name}() raised {error!r}")


@check(
    "lifecycle.memory",
    "close() MUST give the model's memory back, up to one percent.",
    Capability.MEMORY_REPORTING,
)
def memory(subject: Subject) -> None:
    witness: Any = subject.model
    _use(subject, witness)
    for again in (False, True):
        before = witness.memory().active_bytes
        with subject.loaded() as model:
            _use(subject, model)
            during = witness.memory().active_bytes
        must(during > 0, "active_bytes is 0 while a model is loaded")
        gc.collect()
        after = witness.memory().active_bytes
        # Where earlier checks left a hundred models, one more is a hundredth: but it comes again.
        own = max((during - before) / 2, _LITTLE)
        most = min(max(before, during) / 100, own if again else math.inf)
        must(
            after - before <= most,
            f"{before} bytes were active before a model was loaded, {during} while it was used, "
            f"and {after} after close(): free it there, also while the object is still referenced",
        )


@check("lifecycle.threads", "A closed model MUST leave no thread running.")
def threads(subject: Subject) -> None:
    _use(subject, subject.model)  # what the library keeps for the whole process is there now
    before = set(threading.enumerate())
    with subject.loaded() as model:
        _use(subject, model)
    stayed = left_behind(before)
    must(not stayed, f"after close() these threads still run: {stayed}; end and join them there")


@check("lifecycle.silence", "A backend MUST NOT print: stdout belongs to the program.")
def silence(subject: Subject) -> None:
    with heard() as printed, subject.loaded() as model:
        _use(subject, model)
    must(not printed, f"load, use and close printed to stdout: {''.join(printed)[:200]!r}")


@check(
    "lifecycle.any-thread",
    "A model MUST work from any thread: loaded in one, used in others, closed in another.",
)
def any_thread(subject: Subject) -> None:
    model = elsewhere(subject.load)
    try:
        error = elsewhere(lambda: raised(lambda: _use(subject, model)))
        must(error is None, f"a model that another thread loaded cannot be used: {error!r}")
        if subject.declares(Capability.GENERATE):
            _stream_changes_threads(subject, model)
    finally:
        error = elsewhere(lambda: raised(model.close))
    must(error is None, f"a model cannot be closed by a thread that did not load it: {error!r}")


def _must_be_over(stream: TokenStream, what: str) -> tuple[Token, ...]:
    end = ending(lambda: stream)
    must(
        end.error is None or isinstance(end.error, ModelClosedError),
        f"{what} of a closed model raised {end.error!r}: expected ModelClosedError",
    )
    return end.tokens


def _stream_changes_threads(subject: Subject, model: TextModel) -> None:
    prompt = talkative(subject)
    alone = greedy(subject, model, prompt, 4)
    stream = elsewhere(lambda: model.generate(prompt, max_tokens=4))
    moved = elsewhere(lambda: list(stream))
    must(
        same(subject, alone, moved, prompt),
        f"a stream made in one thread and read in another gave {texts(moved)}, not {texts(alone)}",
    )


def _use(subject: Subject, model: TextModel) -> None:
    for name in usable(subject):
        _begin(model, name)()


def _begin(model: TextModel, name: Capability) -> Callable[[], object]:
    """Return a function that makes one small call, and reads its stream so that the work begins."""

    def run() -> object:
        if name is Capability.CLASSIFY:
            return call(model, name)
        results: Any = call(model, name, max_tokens=2)
        return results if name is Capability.BATCH_GENERATE else list(results)

    return run


def _bound(use: Callable[[Any], object], model: TextModel) -> Callable[[], object]:
    return lambda: use(model)


def _is_closed(subject: Subject, model: TextModel) -> bool:
    name = next(iter(declared(subject)), Capability.GENERATE)
    error = raised(_begin(model, name))
    # Where nothing is declared, a refusal is all that can be had.
    return isinstance(error, ModelClosedError | UnsupportedOperationError)
