"""Forks while other threads use the model: whatever a fork calls ends there, and at once."""

from __future__ import annotations

import faulthandler
import os
import random
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import core

from .opened import Opener
from .signals import answer
from .verdict import check

SECONDS = 30  # of a fork's calls, each of which takes none
FORKS, WORKERS = 4, 3
Call = Callable[[Any], object]

CALLS: tuple[Call, ...] = (
    lambda model: model.encode("ab no"),
    lambda model: model.decode([5, 6]),
    lambda model: model.render_chat([core.Message("user", "ab")]),
    lambda model: list(model.generate("ab", max_tokens=2)),
    lambda model: list(model.chat([core.Message("user", "ab")], max_tokens=2)),
    lambda model: model.classify(["ab", "no"]),
    lambda model: model.batch_generate(["ab"], max_tokens=2),
    lambda model: model.score(["ab"], [" no"]),
    lambda model: (model.info, model.metrics, repr(model)),
    lambda model: model.close(),
)


def prepare(place: Path, variant: str) -> Callable[[int], str]:
    """The case's number is the seed of what the threads and the forks call."""
    opener = Opener(place, variant)
    opener.warm()

    def case(number: int) -> str:
        dice = random.Random(f"{variant} {number}")
        with opener.load() as model, Work(model, dice):
            for _ in range(FORKS):
                forked(model, dice, place / "stacks")
        return "forked"

    return case


class Work:
    """Threads that use the model for as long as this is open."""

    def __init__(self, model: Any, dice: random.Random) -> None:
        self._model, self._ended = model, threading.Event()
        seeds = [dice.random() for _ in range(WORKERS)]
        self._threads = [threading.Thread(target=self._work, args=(seed,)) for seed in seeds]

    def __enter__(self) -> None:
        self._before = answer(self._model)
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        assert answer(self._model) == self._before

    def _work(self, seed: float) -> None:
        dice = random.Random(seed)
        while not self._ended.is_set():
            try:
                dice.choice(CALLS[:-1])(self._model)
            except core.CoreError as error:
                check(error)


def forked(model: Any, dice: random.Random, stacks: Path) -> None:
    """A fork that makes some calls; it has to end well, and says in ``stacks`` why it did not."""
    calls = dice.sample(range(len(CALLS)), 4)
    child = os.fork()
    if not child:
        with stacks.open("w") as out:
            os._exit(_in_fork(model, [CALLS[i] for i in calls], out))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"a fork that calls {calls} of CALLS: {status}\n{stacks.read_text()}"


def _in_fork(model: Any, calls: list[Call], out: TextIO) -> int:
    faulthandler.dump_traceback_later(SECONDS, exit=True, file=out)  # and status 1
    try:
        for call in calls:
            try:
                call(model)
            except core.CoreError as error:
                check(error)
    except BaseException:  # noqa: BLE001 - it must not get out of the fork
        traceback.print_exc(file=out)
        out.flush()
        return 2
    return 0
