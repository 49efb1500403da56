"""Calls that checks make: a model's answers, expected errors, threads and cancel tokens."""

from __future__ import annotations

import copy
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from core.errors import UnsupportedOptionError
from core.protocols import Capability, TextModel, TokenStream
from core.types import FinishReason, Message, Token
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import PLAIN, Answer, speak, voice
from core_conformance.checking.budget import pass_seconds
from core_conformance.checking.check import must, well_formed
from core_conformance.checking.compare import difference
from core_conformance.checking.material import own
from core_conformance.checking.subject import Subject

T = TypeVar("T")

_OWN = own()
PROMPTS = (_OWN and _OWN.prompts[-4:]) or (
    "Once upon a time there was a",
    "The weather today is",
    "In the year 1969, people",
    "1, 2, 3, 4, 5,",
)
CHAT = (Message("user", "Tell me about the sea."),)
ROW_OPERATIONS = (Capability.CLASSIFY, Capability.BATCH_GENERATE, Capability.LABEL_SENTENCES)
READING = (Capability.GENERATE, *ROW_OPERATIONS)
"""The operations that take prompts as they are."""
OPERATIONS = (Capability.GENERATE, Capability.CHAT, *ROW_OPERATIONS)

ENOUGH = 8  # tokens
_MOMENT = 0.2  # seconds
_PATIENCE, _PASSES = 6.0, 400  # seconds, and passes, in which any call of the suite ends
_longest: WeakKeyDictionary[Subject, tuple[str, int]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Ending:
    """Everything that a stream gave: its tokens, and the error that it ended with."""

    tokens: tuple[Token, ...]
    error: Exception | None
    reason: FinishReason | None


def ending(open_stream: Callable[[], TokenStream]) -> Ending:
    """Read a stream to its end; an error of the call itself counts as one of the stream."""
    tokens: list[Token] = []
    try:
        stream = open_stream()
    except Exception as error:  # noqa: BLE001 - the check looks at it
        return Ending((), error, None)
    try:
        tokens.extend(stream)
    except Exception as error:  # noqa: BLE001 - the same
        return Ending(tuple(tokens), error, stream.finish_reason)
    return Ending(tuple(tokens), None, stream.finish_reason)


def greedy(subject: Subject, model: TextModel, prompt: str, count: int = 6) -> list[Token]:
    """Generate at most ``count`` greedy tokens, with log-probabilities if they are declared."""
    return list(speak(subject, model, prompt, **greedy_options(subject, count)))


def greedy_options(subject: Subject, count: int = 6) -> dict[str, Any]:
    """Return the options of `greedy`."""
    options: dict[str, Any] = {"max_tokens": count}
    if subject.declares(Capability.LOGPROBS):
        options["return_logprobs"] = True
    return options


def talkative(subject: Subject) -> str:
    """Return the prompt that the model continues for `ENOUGH` tokens, or else for the most."""
    return longest(subject)[0]


def longest(subject: Subject) -> tuple[str, int]:
    """Return the prompt of the longest greedy answer, and that answer's length.

    `ENOUGH` at most.
    """
    if subject not in _longest:
        best: tuple[str, list[Token]] = ("", [])
        for prompt in (*PROMPTS, *PLAIN):
            candidate = (prompt, greedy(subject, subject.model, prompt, ENOUGH))
            best = max(best, candidate, key=lambda pair: len(pair[1]))
            if len(best[1]) >= ENOUGH:
                break
        goes_on(subject, [best[1]])
        _longest[subject] = best[0], len(best[1])
    return _longest[subject]


def same(subject: Subject, one: Sequence[Token], other: Sequence[Token], prompt: str = "") -> bool:
    """Return True when two greedy runs of one prompt agree, by `compare.difference`."""
    continued = "" if voice(subject) is Capability.CHAT else prompt
    pair = Answer(tuple(one), None, continued), Answer(tuple(other), None)
    return difference(subject, [pair]) is None


def texts(tokens: Sequence[Token]) -> str:
    """Return the texts of tokens, as a message shows them."""
    return repr([token.text for token in tokens])


def call(model: TextModel, operation: Capability, *config: Any, **options: Any) -> object:
    """Call one operation with a small request; the result is returned unread."""
    what: Any = {Capability.GENERATE: PROMPTS[0], Capability.CHAT: CHAT}.get(operation, PROMPTS[:1])
    return getattr(model, operation.value)(what, *config, **options)


def declared(subject: Subject, *among: Capability) -> list[Capability]:
    """Return the operations that the backend offers, of those named, or of all by default."""
    return subject.operations(*among or OPERATIONS)


def raised(run: Callable[[], object]) -> Exception | None:
    """Run a call and return the error that it raises; None when it returns."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - the check looks at it
        return error
    return None


def must_raise(kind: type[Exception], run: Callable[[], object], what: str) -> Exception:
    """Run ``what`` and return its error of this kind; `Violation` if it raises none, or another."""
    error = raised(run)
    name = kind.__name__
    well_formed(error is not None, f"{what} was accepted: it must raise {name}")
    must(isinstance(error, kind), f"{what} raised {error!r}: expected {name}")
    assert error is not None
    return error


@contextmanager
def unless_refused(option: str) -> Iterator[None]:
    """Excuse a refusal, by its name, of an option that no capability covers."""
    try:
        yield
    except UnsupportedOptionError as error:
        must(
            error.option == option,
            f"{option} was refused under the wrong option name: {error.option!r}",
        )


def together(*calls: Callable[[], T]) -> list[T]:
    """Run each call in a separate thread, all at once, and return their results in order."""
    start = threading.Barrier(len(calls))
    done: dict[int, T] = {}
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            start.wait()
            done[index] = calls[index]()
        except BaseException as error:  # noqa: BLE001 - raised again where the check can see it
            errors.append(error)

    # Daemons: one that hangs for ever does not keep the process from ending.
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # A failure of any call is the check's to see.
    if errors:
        raise errors[0]
    return [done[index] for index in range(len(calls))]


def elsewhere(run: Callable[[], T]) -> T:
    """Run a call in another thread and return its result."""
    return together(run)[0]


def encoded_length(subject: Subject, text: str) -> int | None:
    """Return the number of a prompt's tokens.

    None for a backend that does not show its tokenizer.
    """
    if not subject.declares(Capability.TOKENIZING):
        return None
    model: Any = subject.model
    return len(model.encode(text))


def at(subject: Subject, path: str | os.PathLike[str]) -> Subject:
    """Return a subject with this backend and these options that loads from another path."""
    other: Any = copy.copy(subject)
    other.path = path
    return cast("Subject", other)


class Meeting:
    """Lets calls in several threads wait for one another, so that they run at the same time.

    They wait for a moment only: a call that a backend lets wait for its turn cannot come, and
    then the others continue without it.
    """

    def __init__(self, calls: int) -> None:
        self._barrier = threading.Barrier(calls)

    def wait(self) -> None:
        """Wait until all calls are here, or for a moment."""
        with suppress(threading.BrokenBarrierError):
            self._barrier.wait(timeout=_MOMENT)

    def each(self, tokens: Iterable[Token]) -> list[Token]:
        """Read a stream, with a meeting after each of its tokens."""
        read = []
        for token in tokens:
            read.append(token)
            self.wait()
        return read


def already_set() -> threading.Event:
    """Return a cancel that is set from the beginning."""
    event = threading.Event()
    event.set()
    return event


class CancelAfter:
    """A cancel that is set from the ``looks``-th look on, or once ``now`` is true.

    Any thread may look. ``times``: when each look was, by the clock `time.perf_counter`; ``heard``:
    how many looks there had been when it was first said to be set; 0 until then.
    """

    def __init__(self, looks: float = math.inf) -> None:
        self._looks, self.now, self.heard = looks, False, 0
        self.times: list[float] = []

    @property
    def seen(self) -> int:
        """The number of polls so far."""
        return len(self.times)

    def is_set(self) -> bool:
        """See `core.CancelToken`."""
        self.times.append(time.perf_counter())
        answer = self.now or self.seen >= self._looks
        if answer and not self.heard:
            self.heard = self.seen
        return answer

    def settled(self, pause: float) -> int:
        """Wait until a pause, in seconds, passes without a look; return the number of looks."""
        seen = -1
        while seen != self.seen:
            seen = self.seen
            time.sleep(pause)
        return seen


class SlowLooks(CancelAfter):
    """A cancel that is never set, each of whose looks takes some seconds.

    A backend looks at least once for each token of a row: so rows take their time on any machine.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def is_set(self) -> bool:
        """See `core.CancelToken`."""
        time.sleep(self._seconds)
        return super().is_set()


def promptly(subject: Subject, run: Callable[[], T], what: str, seconds: float | None = None) -> T:
    """Run a call in another thread, and return what it does; `Violation` if it does not end.

    It may take ``seconds``; by default, as many as any call of the suite takes.
    """
    patience = seconds or _PATIENCE + _PASSES * pass_seconds(subject)
    done: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

    def work() -> None:
        try:
            done.put((run(), None))
        except BaseException as error:  # noqa: BLE001 - raised again where the check can see it
            done.put((None, error))

    threading.Thread(target=work, name="conformance-call", daemon=True).start()
    try:
        result, error = done.get(timeout=patience)
    except Empty:
        must(False, f"{what} did not end within {patience:.0f} s: it hangs")
        raise
    if error is not None:
        raise error
    return cast("T", result)


def close_quietly(stream: TokenStream | None) -> None:
    """Close a stream that a check left open, whatever its state."""
    if stream is not None:
        with suppress(Exception):
            stream.close()
