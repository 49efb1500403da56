"""Makes random public calls in this process, and prints each before it makes it.

What an earlier call left open may matter to a later one, so a failure is repeated from the first
seed of its process, in the folder above::

    python -m fuzz.calls MODEL TINY ADAPTER FIRST COUNT
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import random
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

# Threads that wait for one another without sleeping take minutes where other programs run.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import core
from core_llama_cpp.model import LlamaModel

from .draws import CLASSIFY, GENERATE, LOAD, OWN, WEIRD, bounded, ids, message, several, some, text

HANG_SECONDS = 180  # a call takes far less than one
MEMORY_BYTES = 16 * 2**30  # of addresses: what asks for more has believed a lying size
BESIDE = 4  # streams that are left open while other calls run


class World:
    """One model with what earlier calls left open, and the next call."""

    def __init__(self, path: str, tiny: str, adapter: str, overflow: str) -> None:
        self.path, self.tiny, self.adapter = path, tiny, adapter
        self.overflow: Any = overflow
        self.streams: list[Any] = []
        self.reopen()

    def reopen(self) -> None:
        """A fresh model, small enough that every limit is near."""
        model = core.load_model(
            self.path,
            backend="llama_cpp",
            context_len=64,
            context_overflow=self.overflow,
            parallel_slots=3,
            options={"n_threads": 1, "n_batch": 32, "cache_cells": 256},
        )
        self.model = cast("LlamaModel", model)

    def attempt(self, seed: int) -> None:
        """One call, which may be several at once."""
        dice = random.Random(seed)
        operation = dice.choice(OPERATIONS)
        self.perform(f"{seed} {operation.__name__}", operation, dice)
        if dice.random() < 0.01:
            self.perform(f"{seed} close", World.close, dice)
            self.perform(f"{seed} closed {operation.__name__}", operation, dice)
            self.streams.clear()
            self.reopen()

    def perform(self, what: str, operation: Operation, dice: random.Random) -> None:
        """A call, said before it is made, and what came of it."""
        print(what, end=" ", flush=True)  # noqa: T201
        try:
            operation(self, dice)
            kind = "returned"
        except (core.CoreError, TypeError) as error:
            kind = type(error).__name__
        print("->", kind, flush=True)  # noqa: T201

    def call(self, name: str, /, *args: Any, **options: Any) -> Any:
        """A method of the model, by name."""
        print(f"{name}{args!a:.700} {options!a:.700}", end=" ", flush=True)  # noqa: T201
        return getattr(self.model, name)(*args, **options)

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
        name = dice.choice(("generate", "submit", "chat", "encode", "render_chat", "decode"))
        self.taken(dice, self.call(name, dice.choice(WEIRD)))

    def chat(self, dice: random.Random) -> None:
        args, options = self.asked(dice, GENERATE)
        self.taken(dice, self.call("chat", several(dice, message), *args, **options))

    def submit(self, dice: random.Random) -> None:
        config = core.GenerateConfig(**bounded(dice, some(dice, GENERATE)))
        self.taken(dice, self.call("submit", text(dice), config))

    def classify(self, dice: random.Random) -> None:
        args, options = self.asked(dice, CLASSIFY)
        check(self.call("classify", several(dice, text), *args, **options))

    def batch_generate(self, dice: random.Random) -> None:
        args, options = self.asked(dice, GENERATE)
        check(self.call("batch_generate", several(dice, text), *args, **options))

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
        check(self.call("generate_tokens", prompts, *args, **options))

    def score(self, dice: random.Random) -> None:
        heads = several(dice, text)
        tails = [text(dice) for _ in heads] if isinstance(heads, list) else several(dice, text)
        check(self.call("score", heads, tails))

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
                beside.perform(f"[{operation.__name__}]", operation, inner)
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
        path, options = self.tiny, some(dice, LOAD, odd=0.1)
        if dice.random() < 0.1:
            path = dice.choice(("", "\0", "~", "/dev/null", "/dev/zero", "x" * 5000, *WEIRD))
        if dice.random() < 0.2:
            places = (self.adapter, self.tiny, Path(self.tiny).parent, "nothing", "\0", b"x")
            options["adapter_path"] = dice.choice(places)
        options["options"] = {"n_threads": 1, **some(dice, OWN, odd=0.1)}
        if dice.random() < 0.2:  # the real one, with a cache that is small for sure
            path = self.path
            options |= {"context_len": dice.choice((1, 32, 256)), "parallel_slots": 2}
            options["options"] = {"n_threads": 1, "cache_cells": 256}
        print(f"{path!a:.99} {options!a}", end=" ", flush=True)  # noqa: T201
        beside = core.load_model(path, **{"backend": "llama_cpp", **options})
        model = cast("LlamaModel", beside)
        list(model.generate("ab", max_tokens=2))
        check(model.classify(["ab a", "ab b"], labels=["a", "bb"]))
        if dice.random() < 0.7:
            model.close()

    def taken(self, dice: random.Random, found: Any) -> None:
        """Some of a stream's tokens; then it ends, is dropped, or stays open."""
        if not isinstance(found, Iterator):
            return
        for _ in itertools.islice(found, dice.choice((0, 1, 3, 99))):
            pass
        kind = dice.random()
        if kind < 0.3:
            cast("Any", found).close()
        elif kind < 0.7 and len(self.streams) < BESIDE:
            self.streams.append(found)


class Beside(World):
    """The same model from another thread, which leaves no stream behind."""

    def __init__(self, world: World) -> None:
        self.model, self.streams = world.model, [None] * BESIDE


Operation = Callable[[World, random.Random], None]
BESIDES: tuple[Operation, ...] = (
    *(World.generate, World.chat, World.submit, World.classify, World.classify),
    *(World.batch_generate, World.batch_stream, World.score, World.tokens),
)
OPERATIONS: tuple[Operation, ...] = (
    *(*BESIDES, *BESIDES, World.generate_tokens, World.odd_prompt, World.facts),
    *(World.stream, World.stream, World.stream, World.stream, World.threads, World.load),
)


def check(rows: list[Any]) -> None:
    for row in rows:
        assert row.error is None or isinstance(row.error, core.CoreError), row.error


def answer(model: LlamaModel) -> list[int]:
    return [token.id for token in model.generate("The capital of", max_tokens=6)]


def main() -> None:
    """Make ``count`` calls from ``first`` on; the model has to be what it was after them."""
    (path, tiny, adapter), (first, count) = sys.argv[1:4], map(int, sys.argv[4:])
    faulthandler.enable()
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    world = World(path, tiny, adapter, "rotate" if first % 3 == 0 else "stop")
    expected = answer(world.model)
    for seed in range(first, first + count):
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        world.attempt(seed)
    for stream in world.streams:
        stream.close()
    model = world.model
    assert answer(model) == expected
    pool = model._passes._pool
    assert model._owner.run(lambda: pool.cells) == pool.size
    model.close()
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
