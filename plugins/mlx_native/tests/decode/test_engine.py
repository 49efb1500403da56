"""What the engine promises about its rows: neighbours, order, slots, memory, the context's end."""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from core.errors import GenerationCancelled
from core.options import GenerateConfig, LoadConfig
from core.types import Token
from core_mlx_native.backend import Cpu
from core_mlx_native.decode.batch import DecodeBatch
from core_mlx_native.decode.engine import MlxEngine
from core_mlx_native.decode.prefilling import Prefilling
from core_mlx_native.loaded import LoadedModel, load
from core_mlx_native.model import MlxModel
from core_runtime.owner import OwnerThread
from core_runtime.request import Item, Request, RequestEnd
from core_runtime.stream import RequestStream
from core_runtime.waiting import PromptJob, WaitingLine

Checkpoint = Callable[..., Path]


class Owner(OwnerThread):
    """An owner thread that never serves: what is posted runs when the test says so."""

    def __init__(self) -> None:
        super().__init__("bench")
        self.stop()
        self.posted: deque[Callable[[], None]] = deque()

    def post(self, job: Callable[[], None]) -> bool:
        self.posted.append(job)
        return True


@dataclass
class Output:
    """Where one request's tokens go."""

    ids: list[int] = field(default_factory=list)
    end: RequestEnd | None = None

    def __call__(self, item: Item) -> None:
        if isinstance(item, RequestEnd):
            assert self.end is None, "ended twice"
            self.end = item
        else:
            self.ids += [token.id for token in item]

    @property
    def reason(self) -> str | None:
        return self.end.reason if self.end else None


class Bench:
    """An engine whose steps the test takes itself. No token ends a generation."""

    def __init__(self, directory: Path, **config: Any) -> None:
        model = load(directory, LoadConfig(**config), on_gpu=False)
        self.model: LoadedModel = replace(model, stop_ids=frozenset())
        self.owner = Owner()
        self.engine = MlxEngine(self.model, self.owner)
        self.requests: list[Request] = []

    def add(self, length: int, samples: int = 1, **options: Any) -> list[Output]:
        """Submit one prompt; the ids differ from prompt to prompt."""
        first = len(self.requests)
        ids = [2 + (7 * first + 3 * i) % 90 for i in range(length)]
        outputs = [Output() for _ in range(samples)]
        config = GenerateConfig(**options)
        requests = tuple(Request(self.model, ids, config, output) for output in outputs)
        self.requests += requests
        self.engine.submit([PromptJob(ids, requests)])
        return outputs

    def run(self) -> int:
        """Until there is nothing to do; how many steps that took."""
        steps = 0
        while self.engine.step():
            steps += 1
        return steps

    def pump(self) -> int:
        """What the owner thread would run, until it has nothing more; how many jobs (or 100)."""
        for jobs in range(100):
            if not self.owner.posted:
                return jobs
            self.owner.posted.popleft()()
        return 100


# A batch gets what each prompt gets alone.

WORDS = ("ab", "no", " abc", " a", " b", "x", "!", " no")


def text(dice: random.Random) -> str:
    return "".join(dice.choices(WORDS, k=dice.randint(1, 30)))


def options(dice: random.Random) -> GenerateConfig:
    """Any mix; what draws has a seed."""
    return GenerateConfig(
        max_tokens=dice.randint(1, 16),
        temperature=dice.choice([0.0, 0.0, 0.7, 1.0, 1.5]),
        top_k=dice.choice([0, 0, 1, 5, 40]),
        typical_p=dice.choice([1.0, 1.0, 1.0, 0.6]),
        top_p=dice.choice([1.0, 1.0, 0.9, 0.5]),
        min_p=dice.choice([0.0, 0.0, 0.05, 0.2]),
        repeat_penalty=dice.choice([1.0, 1.0, 1.3, 0.8]),
        seed=dice.getrandbits(64),
        stop=dice.choice([(), (), ("ab",), ("o!", "%")]),
        stop_tokens=dice.choice([(), (), (5, 9)]),
        return_logprobs=dice.random() < 0.3,
    )


def read(stream: RequestStream) -> tuple[list[Token], str | None]:
    """Its tokens, log-probabilities apart, and how it ended."""
    tokens = list(stream)
    return [replace(token, logprob=None) for token in tokens], stream.finish_reason


def opened(directory: Path, **config: Any) -> MlxModel:
    return Cpu().load_model(directory, LoadConfig(**config))


def variants(by_default: set[tuple[Any, ...]], *lists: Sequence[Any]) -> list[Any]:
    """Every combination; those that are not run by default are soaks."""
    return [
        pytest.param(*each, marks=[pytest.mark.slow] * (each not in by_default))
        for each in product(*lists)
    ]


@pytest.mark.parametrize(
    ("family", "slots"),
    variants({("gemma3", 2), ("gemma3", 5), ("llama", 1)}, ["gemma3", "llama"], range(1, 6)),
)
def test_requests_with_options_of_their_own_get_what_they_get_alone(
    checkpoint: Checkpoint, family: str, slots: int
) -> None:
    dice = random.Random(slots)
    chunk = {"prefill_chunk": dice.choice([4, 8, 1024])}
    with opened(checkpoint(family), parallel_slots=slots, options=chunk) as model:
        requests = [(text(dice), options(dice)) for _ in range(16)]
        alone = [read(model.generate(*request)) for request in requests]
        assert len({str(tokens) for tokens, _ in alone}) > 8
        for _ in range(3):
            order = dice.sample(range(len(requests)), len(requests))
            streams = {row: model.submit(*requests[row]) for row in order}
            assert [read(streams[row]) for row in range(len(requests))] == alone


@pytest.mark.parametrize(
    ("family", "slots", "temperature"),
    variants(
        {("gemma2", 2, 1.0), ("gemma2", 5, 0.0), ("qwen2", 1, 0.0), ("qwen2", 5, 1.0)},
        *(["gemma2", "qwen2"], [1, 2, 5], [0.0, 1.0]),
    ),
)
def test_a_batch_in_any_order_gets_what_each_prompt_gets_alone(
    checkpoint: Checkpoint, family: str, slots: int, temperature: float
) -> None:
    dice = random.Random(slots)
    config = GenerateConfig(max_tokens=12, temperature=temperature, seed=5)
    with opened(checkpoint(family), parallel_slots=slots) as model:
        prompts = [text(dice) for _ in range(9)]
        alone = [read(model.generate(prompt, config)) for prompt in prompts]
        for _ in range(3):
            order = dice.sample(range(len(prompts)), len(prompts))
            results = model.batch_generate([prompts[row] for row in order], config)
            found = [(list(result.tokens), result.finish_reason) for result in results]
            assert found == [alone[row] for row in order]


def test_threads_share_the_batch_and_get_what_they_get_alone(checkpoint: Checkpoint) -> None:
    dice = random.Random(0)
    with opened(checkpoint("gemma3"), parallel_slots=3) as model, ThreadPoolExecutor(8) as threads:
        requests = [(text(dice), options(dice)) for _ in range(24)]
        alone = [read(model.generate(*request)) for request in requests]
        together = threads.map(lambda request: read(model.generate(*request)), requests)
        assert list(together) == alone


def test_a_neighbour_that_is_cancelled_changes_nothing(checkpoint: Checkpoint) -> None:
    dice = random.Random(1)
    kept = GenerateConfig(max_tokens=30, temperature=1.0, seed=1)
    with opened(checkpoint("gemma3")) as model:
        prompts = [text(dice) for _ in range(4)]
        alone = [read(model.generate(prompt, kept)) for prompt in prompts]
        long = GenerateConfig(max_tokens=60, temperature=1.0, seed=2)
        others = [model.submit(text(dice), long) for _ in prompts]
        streams = [model.submit(prompt, kept) for prompt in prompts]
        for stream in others:
            next(stream)
            stream.close()
        assert [read(stream) for stream in streams] == alone


REAL_PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived an old fisherman who",
    "2, 4, 6, 8,",
    "Water",
    "The three most common reasons why a software project is late are the following. First,",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2_dir", "gemma3_dir"])
def test_a_real_model_says_the_same_in_a_batch(request: pytest.FixtureRequest, name: str) -> None:
    with opened(request.getfixturevalue(name), parallel_slots=3) as model:
        alone = [read(model.generate(prompt, max_tokens=24)) for prompt in REAL_PROMPTS]
        results = model.batch_generate(REAL_PROMPTS, max_tokens=24)
        assert [(list(result.tokens), result.finish_reason) for result in results] == alone
        assert len({tokens[-1].id for tokens, _ in alone}) > 1


# Steps, slots, and what is held.


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the parts that an engine has set to work."""
    found: list[str] = []
    for owner, name in ((WaitingLine, "take"), (Prefilling, "step"), (DecodeBatch, "step")):
        plain = getattr(owner, name)

        def noted(
            *args: Any, _plain: Any = plain, _name: str = f"{owner.__name__}.{name}", **kwargs: Any
        ) -> Any:
            found.append(_name)
            return _plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, noted)
    return found


def test_an_idle_engine_does_nothing_and_says_so(checkpoint: Checkpoint, calls: list[str]) -> None:
    bench = Bench(checkpoint())
    assert bench.engine.step() is False
    assert calls == []
    outputs = bench.add(3, max_tokens=4)
    assert bench.engine.step() is True
    assert set(calls) == {"WaitingLine.take", "Prefilling.step", "DecodeBatch.step"}
    bench.run()
    assert outputs[0].reason == "length"
    calls.clear()
    assert bench.engine.step() is False
    assert calls == []


def test_an_idle_engine_leaves_its_thread_alone(checkpoint: Checkpoint) -> None:
    bench = Bench(checkpoint())
    outputs = bench.add(3, max_tokens=4) + bench.add(5, max_tokens=2)
    assert bench.pump() < 10
    assert [output.reason for output in outputs] == ["length", "length"]
    again = bench.add(2, max_tokens=3)
    assert bench.pump() < 10
    assert again[0].reason == "length"


@dataclass(frozen=True)
class Load:
    """A decode step as it begins."""

    live: int
    rows: int
    waiting: bool  # whether a request waits for a slot


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Callable[[Bench], list[Load]]:
    """Records the decode steps of a bench from now on."""

    def watch(bench: Bench) -> list[Load]:
        found: list[Load] = []
        step = DecodeBatch.step

        def noted(batch: DecodeBatch) -> None:
            waiting = any(id(request) not in begun for request in bench.requests)
            found.append(Load(batch.live, len(batch.requests), waiting))
            step(batch)

        begun: set[int] = set()
        begin = Request.begin

        def started(request: Request) -> None:
            begun.add(id(request))
            begin(request)

        monkeypatch.setattr(DecodeBatch, "step", noted)
        monkeypatch.setattr(Request, "begin", started)
        return found

    return watch


Loads = Callable[[Bench], list[Load]]


def test_a_slot_is_refilled_at_once_and_never_shared(checkpoint: Checkpoint, loads: Loads) -> None:
    bench = Bench(checkpoint(), parallel_slots=3)
    found = loads(bench)
    budgets = [2 + 5 * i % 11 for i in range(20)]
    outputs = [bench.add(1 + i % 7, max_tokens=n)[0] for i, n in enumerate(budgets)]
    steps = bench.run()
    assert [len(output.ids) for output in outputs] == budgets
    assert max(load.rows for load in found) == 3
    assert {load.live for load in found if load.waiting} == {3}
    assert steps <= sum(budgets) / 3 + max(budgets)


def test_rows_that_have_ended_leave_when_nothing_waits(
    checkpoint: Checkpoint, loads: Loads
) -> None:
    bench = Bench(checkpoint(), parallel_slots=5)
    found = loads(bench)
    for length, budget in ((3, 4), (9, 12), (2, 8), (5, 4), (1, 16)):
        bench.add(length, max_tokens=budget)
    bench.run()
    assert [load.live for load in found] == [5] * 4 + [3] * 4 + [2] * 4 + [1] * 4
    assert all(load.rows == load.live for load in found)


def test_more_samples_than_slots_run_alone(checkpoint: Checkpoint, loads: Loads) -> None:
    bench = Bench(checkpoint(), parallel_slots=3)
    found = loads(bench)
    before = bench.add(4, max_tokens=6) + bench.add(2, max_tokens=9)
    many = bench.add(5, samples=5, max_tokens=4, temperature=1.0)
    behind = bench.add(3, max_tokens=7)
    bench.run()
    assert all(output.reason == "length" for output in (*before, *many, *behind))
    assert [load.live for load in found] == [2] * 6 + [1] * 3 + [5] * 4 + [1] * 7


def test_samples_come_from_one_prefill(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[int] = []
    step = Prefilling.step

    def counted(group: Prefilling, tokens: int) -> None:
        before = sum(group.cache._lengths)
        step(group, tokens)
        fed.append(sum(group.cache._lengths) - before)

    monkeypatch.setattr(Prefilling, "step", counted)
    config = GenerateConfig(max_tokens=20, temperature=1.0, seed=3)
    with opened(checkpoint("gemma3"), parallel_slots=6, options={"prefill_chunk": 8}) as model:
        ids = model.encode("ab no abc" * 4)
        samples = model.generate_tokens([ids], config, num_samples=4)
        assert sum(fed) == len(ids)
        assert len(fed) == -(-len(ids) // 8)
        single = [token.id for token in model.generate("ab no abc" * 4, config)]
        greedy = model.generate_tokens([ids], num_samples=3, max_tokens=20)
    assert list(samples[0].ids) == [*ids, *single]
    assert len({sample.ids for sample in samples}) == 4
    assert len({sample.ids for sample in greedy}) == 1


WIDE = {"hidden_size": 256, "head_dim": 64, "max_position_embeddings": 512}


def held(model: MlxModel) -> int:
    """Bytes of all arrays, once the model's thread is done with what it was given."""
    model.memory()
    gc.collect()
    return mx.get_active_memory()


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_an_idle_model_holds_its_weights_only(checkpoint: Checkpoint, family: str) -> None:
    # And what it keeps of prompts, of which test_recall tells.
    with opened(checkpoint(family, **WIDE), options={"prefix_cache": 0}) as model:
        weights = held(model)
        stream = model.submit("ab no" * 40, GenerateConfig(max_tokens=200, temperature=1.0))
        next(stream)
        assert held(model) > weights
        stream.close()
        assert held(model) == weights
        model.batch_generate(["ab", "no " * 90, "abc " * 30], max_tokens=40)
        assert held(model) == weights
        list(model.generate("ab " * 50, max_tokens=1))
        assert held(model) == weights


# The context's end.


@pytest.mark.parametrize("length", [1, 10, 15, 16])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_generation_ends_at_the_context(checkpoint: Checkpoint, family: str, length: int) -> None:
    directory = checkpoint(family)
    stopped = Bench(directory, context_len=16)
    output = stopped.add(length, max_tokens=40)[0]
    stopped.run()
    assert output.reason == "length"
    assert len(output.ids) == max(1, 16 - length)
    rotating = Bench(directory, context_len=16, context_overflow="rotate")
    further = rotating.add(length, max_tokens=40)[0]
    rotating.run()
    assert further.reason == "length"
    assert len(further.ids) == 40
    assert further.ids[: len(output.ids)] == output.ids


# A long prompt and its neighbours.


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Request | str]:
    """In order: "chunk" for each piece of a prefill, and the request that gets a token."""
    found: list[Request | str] = []
    step, take = Prefilling.step, Request.take

    def prefilled(group: Prefilling, tokens: int) -> None:
        found.append("chunk")
        step(group, tokens)

    def taken(request: Request, token: int, logprob: float | None) -> None:
        found.append(request)
        take(request, token, logprob)

    monkeypatch.setattr(Prefilling, "step", prefilled)
    monkeypatch.setattr(Request, "take", taken)
    return found


def between(events: Sequence[Request | str]) -> list[list[Request | str]]:
    """What comes behind each chunk."""
    parts: list[list[Request | str]] = []
    for event in events:
        if event == "chunk":
            parts.append([])
        else:
            parts[-1].append(event)
    return parts


def test_a_long_prompt_does_not_hold_up_the_rows_that_decode(
    checkpoint: Checkpoint, events: list[Request | str]
) -> None:
    bench = Bench(checkpoint(max_position_embeddings=256), options={"prefill_chunk": 8})
    for length in (3, 5):
        bench.add(length, max_tokens=40)
    first, second = bench.requests
    while not (first.drawn and second.drawn):
        bench.engine.step()
    events.clear()
    bench.add(120, max_tokens=2)
    bench.run()
    parts = between(events)
    assert len(parts) == 120 // 8
    assert all(len(part) == 2 and set(part) == {first, second} for part in parts[:-1])
    assert set(parts[-1]) == set(bench.requests)


def test_a_short_prompt_overtakes_a_long_one(
    checkpoint: Checkpoint, events: list[Request | str]
) -> None:
    bench = Bench(checkpoint(max_position_embeddings=256), options={"prefill_chunk": 8})
    bench.add(200, max_tokens=2)
    bench.engine.step()
    bench.add(6, max_tokens=4)
    bench.run()
    long, short = bench.requests
    assert events.index(short) <= 4
    assert events.index(long) > events.index(short) + 20


def test_a_cancel_between_two_chunks_ends_the_prefill(
    checkpoint: Checkpoint, events: list[Request | str]
) -> None:
    bench = Bench(checkpoint(max_position_embeddings=256), options={"prefill_chunk": 8})
    output = bench.add(200)[0]
    bench.engine.step()
    bench.requests[0].abandon()
    bench.run()
    assert events == ["chunk"]
    assert output.end is not None
    assert isinstance(output.end.error, GenerationCancelled)
