"""What checks ask a model, and when two answers count as the same."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from core.capability import Capability
from core.errors import UnsupportedOptionError
from core.protocols import TextModel, TokenStream
from core.types import FinishReason, Message, Token
from core_conformance.answers import Answer
from core_conformance.model import must
from core_conformance.preconditions import goes_on
from core_conformance.prompts import PLAIN
from core_conformance.relations import difference
from core_conformance.speaking import speak, voice
from core_conformance.subject import Subject

T = TypeVar("T")

PROMPTS = (
    "Once upon a time there was a",
    "The weather today is",
    "In the year 1969, people",
    "1, 2, 3, 4, 5,",
)
CHAT = (Message("user", "Tell me about the sea."),)
ROW_OPERATIONS = (Capability.CLASSIFY, Capability.BATCH_GENERATE)
OPERATIONS = (Capability.GENERATE, Capability.CHAT, *ROW_OPERATIONS)


ENOUGH = 8  # tokens
_MOMENT = 0.2  # seconds
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
    """At most ``count`` greedy tokens, with log-probabilities where there are any."""
    return list(speak(subject, model, prompt, **greedy_options(subject, count)))


def greedy_options(subject: Subject, count: int = 6) -> dict[str, Any]:
    """The options of `greedy`."""
    options: dict[str, Any] = {"max_tokens": count}
    if subject.declares(Capability.LOGPROBS):
        options["return_logprobs"] = True
    return options


def talkative(subject: Subject) -> str:
    """The prompt after which the model goes on for `ENOUGH` tokens, or else the longest."""
    return longest(subject)[0]


def longest(subject: Subject) -> tuple[str, int]:
    """That prompt, and how many tokens follow it: `ENOUGH` at most."""
    if subject not in _longest:
        best: tuple[str, list[Token]] = ("", [])
        for prompt in (*PROMPTS, *PLAIN):
            found = (prompt, greedy(subject, subject.model, prompt, ENOUGH))
            best = max(best, found, key=lambda each: len(each[1]))
            if len(best[1]) >= ENOUGH:
                break
        goes_on(subject, [best[1]])
        _longest[subject] = best[0], len(best[1])
    return _longest[subject]


def same(subject: Subject, one: Sequence[Token], other: Sequence[Token], prompt: str = "") -> bool:
    """Whether two greedy runs of one prompt agree, as `relations.difference` has it."""
    continued = "" if voice(subject) is Capability.CHAT else prompt
    pair = Answer(tuple(one), None, continued), Answer(tuple(other), None)
    return difference(subject, [pair]) is None


def texts(tokens: Sequence[Token]) -> str:
    """Tokens as a message shows them."""
    return repr([token.text for token in tokens])


def call(model: TextModel, operation: Capability, *config: Any, **options: Any) -> object:
    """Ask one operation something small; what it returns is not looked at."""
    what: Any = {Capability.GENERATE: PROMPTS[0], Capability.CHAT: CHAT}.get(operation, PROMPTS[:1])
    return getattr(model, operation.value)(what, *config, **options)


def declared(subject: Subject, *among: Capability) -> list[Capability]:
    """Those of these operations, or of all, that the backend offers."""
    return [name for name in among or OPERATIONS if subject.declares(name)]


def raised(run: Callable[[], object]) -> Exception | None:
    """What a call raises; None when it returns."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - the check looks at it
        return error
    return None


def must_raise(kind: type[Exception], run: Callable[[], object], what: str) -> Exception:
    """The error of this kind that ``what`` raises; `Violation` when it raises none, or another."""
    error = raised(run)
    name = kind.__name__
    must(error is not None, f"{what} was accepted: it has to raise {name}")
    must(isinstance(error, kind), f"{what} raised {error!r}: it has to be {name}")
    assert error is not None
    return error


@contextmanager
def unless_refused(option: str) -> Iterator[None]:
    """An option that no capability stands for may be refused, by its name."""
    try:
        yield
    except UnsupportedOptionError as error:
        must(error.option == option, f"{option} was refused under another name: {error.option!r}")


def together(*calls: Callable[[], T]) -> list[T]:
    """Run each call in a thread of its own, all at once; their results, in order."""
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
    if errors:
        raise errors[0]
    return [done[index] for index in range(len(calls))]


def elsewhere(run: Callable[[], T]) -> T:
    """Run a call in another thread; its result."""
    return together(run)[0]


def encoded_length(subject: Subject, text: str) -> int | None:
    """How many tokens a prompt has, where the backend shows its tokenizer."""
    if not subject.declares(Capability.TOKENIZING):
        return None
    model: Any = subject.model
    return len(model.encode(text))


def at(subject: Subject, path: str | os.PathLike[str]) -> Subject:
    """The same backend with the same options, and another path to load from."""
    other: Any = copy.copy(subject)
    other.path = path
    return cast("Subject", other)


class Meeting:
    """Where calls in several threads wait for one another, so that they run at the same time.

    Not for long: one that waits its turn cannot come, and then the others go on without it.
    """

    def __init__(self, calls: int) -> None:
        self._barrier = threading.Barrier(calls)

    def wait(self) -> None:
        """Until all are here, or for a moment."""
        with suppress(threading.BrokenBarrierError):
            self._barrier.wait(timeout=_MOMENT)

    def each(self, tokens: Iterable[Token]) -> list[Token]:
        """Read a stream, with a meeting after each of its tokens."""
        found = []
        for token in tokens:
            found.append(token)
            self.wait()
        return found


def already_set() -> threading.Event:
    """A cancel that is set from the beginning."""
    event = threading.Event()
    event.set()
    return event


class CancelAfter:
    """A cancel that is set from the ``looks``-th look on, or once ``now`` is true."""

    def __init__(self, looks: int) -> None:
        self._looks, self.seen, self.now = looks, 0, False

    def is_set(self) -> bool:
        """See `core.CancelToken`."""
        self.seen += 1
        return self.now or self.seen >= self._looks


def close_quietly(stream: TokenStream | None) -> None:
    """Close a stream that a check leaves behind, whatever state the check found it in."""
    if stream is not None:
        with suppress(Exception):
            stream.close()
