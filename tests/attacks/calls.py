"""Public calls drawn at random: each returns, or raises what its caller can be asked to expect.

A case is an episode of several calls on one model, which has to be what it was after them. Each
call is written to stderr before it is made.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import core

from .draws import CLASSIFY, GENERATE, LOAD, OWN, WEIRD, bounded, ids, message, several, some, text
from .opened import Opener
from .progress import step
from .verdict import check, check_rows

PEAK = 2**30  # bytes: a real model's weights and a copy of some of them
BESIDE = 4  # streams that are left open while other calls run
EPISODE, LONG_EPISODE = 5, 100  # calls on a tiny model, and on a real one, which loads for longer


def prepare(place: Path, variant: str) -> Callable[[int], str]:
    """The case's number is its seed; ``variant``: see `Opener`."""
    opener = Opener(place, variant)
    opener.warm()
    length = LONG_EPISODE if opener.is_real else EPISODE

    def case(number: int) -> str:
        dice = random.Random(f"{variant} {number}")
        world = World(opener, dice.choice(("stop", "stop", "rotate")))
        for _ in range(length):
            world.attempt(dice)
        return world.ended()

    return case


class World:
    """One model with what earlier calls left open, and the next call."""

    def __init__(self, opener: Opener, overflow: str) -> None:
        self.opener, self.overflow = opener, overflow
        self.streams: list[Any] = []
        self.outcomes: list[str] = []
        self.reopen()
        self.expected = self.answer()

    def reopen(self) -> None:
        """A fresh model, small enough that every limit is near."""
        rotates = self.opener.backend != "mlx_lm"
        self.model = self.opener.load(**{"context_overflow": self.overflow} if rotates else {})

    def answer(self) -> list[int]:
        """The same each time; to a worker with a script, it says what to do."""
        return [token.id for token in self.model.generate("count 6", max_tokens=6)]

    def ended(self) -> str:
        """Close all; the model has to be what it was. Returns what came most often."""
        for stream in self.streams:
            stream.close()
        assert self.answer() == self.expected
        self.model.close()
        return max(self.outcomes, key=self.outcomes.count)

    def attempt(self, dice: random.Random) -> None:
        """One call, which may be several at once."""
        operation = dice.choice(OPERATIONS)
        self.perform(operation, dice)
        if dice.random() < 0.02:
            self.perform(World.close, dice)
            self.perform(operation, dice)
            self.streams.clear()
            self.reopen()

    def perform(self, operation: Operation, dice: random.Random) -> None:
        """A call, said before it is made, and what came of it."""
        step()
        sys.stderr.write(f"\n{operation.__name__} ")
        error: Exception | None = None
        try:
            operation(self, dice)
        except Exception as raised:  # noqa: BLE001 - judged below
            error = raised
        self.outcomes.append(check(error))
        sys.stderr.write(f"-> {self.outcomes[-1]}")

    def call(self, name: str, /, *args: Any, **options: Any) -> Any:
        """A method of the model, by name; nothing where it has none."""
        sys.stderr.write(f"{name}{args!a:.700} {options!a:.700} ")
        method = getattr(self.model, name, None)
        return method and method(*args, **options)

    def asked(
        self, dice: random.Random, known: dict[str, tuple[Any, ...]]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Options as a config, as keywords, or as both."""
        options = bounded(dice, some(dice, known)) if "max_tokens" in known else some(dice, known)
        kind = dice.random()
        if kind < 0.03:
            return (dice.choice(WEIRD),), options
        if kind < 0.15:
            return (core.GenerateConfig(**options),), bounded(dice, {}) if kind < 0.08 else {}
        return (), options

    # -------------------------------------------------------- calls

    def generate(self, dice: random.Random) -> None:
        args, options = self.asked(dice, GENERATE)
        self.taken(dice, self.call("generate", text(dice), *args, **options))

    def odd_prompt(self, dice: random.Random) -> None:
        name = dice.choice(
            ("generate", "submit", "chat", "encode", "render_chat", "decode", "inspect_attention")
        )
        self.taken(dice, self.call(name, dice.choice(WEIRD)))

    def chat(self, dice: random.Random) -> None:
        args, options = self.asked(dice, GENERATE)
        self.taken(dice, self.call("chat", several(dice, message), *args, **options))

    def submit(self, dice: random.Random) -> None:
        config = core.GenerateConfig(**bounded(dice, some(dice, GENERATE)))
        self.taken(dice, self.call("submit", text(dice), config))

    def classify(self, dice: random.Random) -> None:
        args, options = self.asked(dice, CLASSIFY)
        check_rows(self.call("classify", several(dice, text), *args, **options) or ())

    def classify_iter(self, dice: random.Random) -> None:
        args, options = self.asked(dice, CLASSIFY)
        self.taken(dice, self.call("classify_iter", several(dice, text), *args, **options))

    def batch_generate(self, dice: random.Random) -> None:
        args, options = self.asked(dice, GENERATE)
        check_rows(self.call("batch_generate", several(dice, text), *args, **options) or ())

    def batch_stream(self, dice: random.Random) -> None:
        args, options = self.asked(dice, GENERATE)
        self.taken(dice, self.call("batch_stream", several(dice, text), *args, **options))

    def generate_tokens(self, dice: random.Random) -> None:
        args, options = self.asked(dice, GENERATE)
        prompts = ids(dice) if dice.random() < 0.3 else several(dice, ids)
        if dice.random() < 0.2:
            options["num_samples"] = dice.choice((1, 2, 5, 0, -1, True, None, 2.5, "2"))
        if dice.random() < 0.1:
            options["attention_mask"] = dice.choice((prompts, *WEIRD))
        check_rows(self.call("generate_tokens", prompts, *args, **options) or ())

    def score(self, dice: random.Random) -> None:
        heads = several(dice, text)
        tails = [text(dice) for _ in heads] if isinstance(heads, list) else several(dice, text)
        check_rows(self.call("score", heads, tails) or ())

    def tokens(self, dice: random.Random) -> None:
        if dice.random() < 0.5:
            self.call("decode", ids(dice))
        else:
            self.call("decode", self.call("encode", text(dice)))

    def facts(self, dice: random.Random) -> None:
        model = self.model
        found = (model.info, model.metrics, model.model_type, model.choices())
        assert all(fact is not None for fact in found)

    def stream(self, dice: random.Random) -> None:
        """Go on with one that was left open, or end it."""
        if self.streams:
            self.taken(dice, self.streams.pop(dice.randrange(len(self.streams))))

    def threads(self, dice: random.Random) -> None:
        """Some calls side by side; one of them may close the model."""
        beside, broken = Beside(self), list[BaseException]()
        closes = dice.random() < 0.1

        def work(seed: int) -> None:
            inner = random.Random(seed)
            operation = World.close if closes and seed % 3 == 0 else inner.choice(BESIDES)
            try:
                beside.perform(operation, inner)
            except BaseException as error:  # noqa: BLE001 - it must reach the main thread
                broken.append(error)

        seed = dice.randrange(10**6)
        workers = [threading.Thread(target=work, args=(seed + i,)) for i in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if broken:
            raise broken[0]
        if closes:
            self.streams.clear()
            self.reopen()

    def close(self, dice: random.Random) -> None:
        for _ in range(dice.choice((1, 2))):
            self.call("close")

    def load(self, dice: random.Random) -> None:
        """Another model beside, with options of every kind, asked once."""
        path, options = self.opener.tiny, some(dice, LOAD, odd=0.1)
        if dice.random() < 0.1:
            path = dice.choice(("", "\0", "~", "/dev/null", "/dev/zero", "x" * 5000, *WEIRD))
        if dice.random() < 0.2:
            places = (self.opener.adapter, self.opener.tiny, "/dev", "nothing", "\0", b"x")
            options["adapter_path"] = dice.choice(places)
        own = some(dice, OWN[self.opener.backend], odd=0.1)
        options["options"] = {**self.opener.least, **own}
        sys.stderr.write(f"load {path!a:.99} {options!a} ")
        model: Any = core.load_model(path, **{"backend": self.opener.backend, **options})
        list(model.generate("ab", max_tokens=2))
        if self.opener.backend != "mlx_lm":
            check_rows(model.classify(["ab a", "ab b"], labels=["a", "bb"]))
        if dice.random() < 0.7:
            model.close()

    def killed(self, dice: random.Random) -> None:
        """A worker ends by any signal there is, or says what it must not; the next call stands."""
        if self.opener.backend != "mlx_lm":
            return
        worker = next(self.model.generate("pid")).id
        faults = [f"fault {name} 1" for name in ("garbage", "utf-8", "other", "half", "exit")]
        if dice.random() < 0.5:
            os.kill(worker, dice.choice([n for n in range(1, 65) if n not in SPARED]))
        for prompt in (dice.choice((*faults, "print", "say a b")), "pid"):
            try:
                list(self.model.generate(prompt, timeout=20))
            except core.BackendProcessError as error:
                check(error)
        list(self.model.generate("pid"))

    def taken(self, dice: random.Random, found: Any) -> None:
        """Some of a stream's tokens; then it ends, is dropped, or stays open."""
        if not isinstance(found, Iterator):
            return
        rows = list(itertools.islice(found, dice.choice((0, 1, 3, 99))))
        check_rows(rows)
        kind = dice.random()
        stream: Any = found
        if kind < 0.3:
            stream.close()
        elif kind < 0.7 and len(self.streams) < BESIDE:
            self.streams.append(stream)


class Beside(World):
    """The same model from another thread, which leaves no stream behind."""

    def __init__(self, world: World) -> None:
        self.model, self.opener = world.model, world.opener
        self.outcomes, self.streams = world.outcomes, [None] * BESIDE


SPARED = (17, 18, 19, 20, 21, 22, 23, 28, 32, 33)  # end no process, stop it, or are the C library's
Operation = Callable[[World, random.Random], None]
BESIDES: tuple[Operation, ...] = (
    *(World.generate, World.chat, World.submit, World.classify, World.classify),
    *(World.batch_generate, World.batch_stream, World.score, World.tokens),
)
OPERATIONS: tuple[Operation, ...] = (
    *(*BESIDES, *BESIDES, World.generate_tokens, World.odd_prompt, World.facts),
    *(World.stream, World.stream, World.stream, World.stream, World.threads, World.load),
    *(World.classify_iter, World.odd_prompt, World.killed, World.killed),
)
