"""Signals at random moments: Ctrl-C ends any call at once, and a handler may close the model."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import core

from .opened import Opener
from .progress import step
from .verdict import check

LONG = "ab no " * 400
MANY = [f"ab {'no ' * (i % 50)}" for i in range(3000)]
CHAT = [core.Message("user", "ab no")] * 300
ENDLESS: dict[str, Any] = {"max_tokens": 10**9, "temperature": 1.0, "timeout": 30.0}
Call = Callable[[Any], object]
OFTEN = 40  # times that a short call is made again, for a signal to meet it

CALLS: tuple[Call, ...] = (
    lambda model: list(model.generate("ab", **ENDLESS)),
    lambda model: list(model.chat(CHAT[:1], **ENDLESS)),
    lambda model: model.classify(MANY, labels=["ab", "no ab"]),
    lambda model: list(model.classify_iter(iter(MANY))),
    lambda model: model.batch_generate(MANY[:20], **ENDLESS),
    lambda model: list(model.batch_stream(MANY[:20], **ENDLESS)),
    lambda model: model.score(MANY[:900], ["ab"] * 900),
    lambda model: [model.encode(LONG * 20) for _ in range(OFTEN)],
    lambda model: [model.render_chat(CHAT) for _ in range(OFTEN)],
    lambda model: [model.decode(model.encode(LONG)) for _ in range(OFTEN)],
)
SCRIPTED: tuple[Call, ...] = (
    lambda model: list(model.generate("count 100000 0.001")),
    lambda model: list(model.chat(CHAT[:1])),
)


def prepare(place: Path, variant: str) -> Callable[[int], str]:
    """The case's number is the seed of what is called, interrupted, and when."""
    opener = Opener(place, variant)
    opener.warm()
    calls = SCRIPTED if variant == "mlx_lm" else CALLS

    def case(number: int) -> str:
        dice = random.Random(f"{variant} {number}")
        kind = dice.choice((interrupted, interrupted, interrupted_load, closed))
        return kind(opener, calls[number % len(calls)], dice)

    return case


def interrupted(opener: Opener, call: Call, dice: random.Random) -> str:
    """Ctrl-C in a call: it ends, and the model is what it was."""
    with opener.load() as model:
        before = answer(model)
        outcome = _interrupted(lambda: call(model), dice)
        assert answer(model) == before
        return outcome


def interrupted_load(opener: Opener, call: Call, dice: random.Random) -> str:
    """Ctrl-C in a load, which leaves nothing."""

    def loads() -> None:
        for _ in range(OFTEN):
            step()
            opener.load().close()

    return "load " + _interrupted(loads, dice)


def closed(opener: Opener, call: Call, dice: random.Random) -> str:
    """A handler closes the model; the call under it ends."""
    model = opener.load()
    with handled(signal.SIGUSR1, lambda *_: model.close()) as arrived, later(signal.SIGUSR1, dice):
        while not arrived:
            try:
                call(model)
            except core.ModelClosedError:
                break
            except core.CoreError as error:
                check(error)
    model.close()
    try:
        call(model)
    except core.ModelClosedError:
        return "closed"
    raise AssertionError("the model answers after it was closed")


def answer(model: Any) -> list[int]:
    return [token.id for token in model.generate("count 3", max_tokens=3)]


def _interrupted(work: Callable[[], object], dice: random.Random) -> str:
    """What a KeyboardInterrupt made of the work; it has to get here."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        with handled(signal.SIGINT, interrupt) as arrived, later(signal.SIGINT, dice):
            try:
                while not arrived:
                    work()
            except core.CoreError as error:
                check(error)
            raise AssertionError(f"the interrupt was lost: {arrived}")
    except KeyboardInterrupt:
        return "interrupted"


@contextmanager
def handled(number: signal.Signals, action: Callable[..., object]) -> Iterator[list[int]]:
    """A handler, which notes that it was called; the one before comes back."""
    arrived: list[int] = []

    def handler(signum: int, frame: object) -> None:
        arrived.append(signum)
        action(signum, frame)

    before = signal.signal(number, handler)
    try:
        yield arrived
    finally:
        signal.signal(number, before)


@contextmanager
def later(number: signal.Signals, dice: random.Random) -> Iterator[None]:
    """The signal comes once to this process, at a random moment from now on."""
    pause = dice.choice((0.0, 0.002, 0.02, 0.2)) * dice.random()

    def send() -> None:
        time.sleep(pause)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        sender.join()
