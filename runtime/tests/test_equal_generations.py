"""Equal rows of ``batch_generate`` are generated once, with equal results and own errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import core
from core.errors import GenerationCancelled, OutOfMemoryError
from core.kit.support import REFUSABLE
from core.options import GenerateConfig
from core_runtime.engine import Engine
from core_runtime.generating import GeneratingModel
from core_runtime.owner import OwnerThread
from core_runtime.request import Request
from core_runtime.text.special_texts import SpecialTexts

CONTEXT, VOCABULARY = 50, 1000
STOP = VOCABULARY - 1


class Letters:
    """A tokenizer with a token for each character, and the detokenizer of it."""

    special_texts = SpecialTexts({})
    incomplete = False

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return list(map(self.encode, texts))

    def fewest_tokens(self, text: str) -> int:
        return len(text)

    def detokenizer(self, prompt: Sequence[int]) -> Letters:
        return self

    def add(self, token_id: int) -> str:
        return chr(token_id)

    def finish(self) -> str:
        return ""


SERVED: Any = SimpleNamespace(
    tokenizer=Letters(),
    info=SimpleNamespace(context_length=CONTEXT, vocab_size=VOCABULARY),
    own_context=CONTEXT,
    stop_ids=frozenset({STOP}),
    rotates=False,
    memory=lambda: SimpleNamespace(peak=0, active=0),
)


class Sums(Engine):
    """Its tokens are sums: of the prompt, the seed where one is drawn with, and the step.

    Prompts with an ``x`` fail behind their second token. ``prompts``: those that were computed.
    """

    def __init__(self, owner: OwnerThread) -> None:
        super().__init__(owner)
        self.prompts: list[str] = []
        self.requests: list[Request] = []

    @property
    def idle(self) -> bool:
        return not (self._waiting or self.requests)

    def _step(self) -> bool:
        for job in self._waiting.take(10**6, anyhow=True):
            self.prompts.append("".join(map(chr, job.ids)))
            self.requests += job.requests
            for request in job.requests:
                request.begin()
        for request in self.requests:
            request.look()
            self._draw(request)
        self.requests = [request for request in self.requests if not request.ended]
        return True

    def _draw(self, request: Request) -> None:
        config = request.config
        drawn = (config.seed or 0) % 97 if config.temperature else 0
        token = (sum(request.ids) * 31 + drawn + request.drawn * 7) % VOCABULARY
        if ord("x") in request.ids and request.drawn == 2:
            request.fail(OutOfMemoryError("No memory is left."))
        elif not request.ended:
            request.take(token, -float(token) if config.return_logprobs else None)

    def _let_go(self) -> list[Request]:
        gone, self.requests = self.requests, []
        return gone


class Model(GeneratingModel):
    """A model whose engine is `Sums`."""

    model_type = "sums"
    honours = REFUSABLE

    def __init__(self) -> None:
        self.owner = OwnerThread("sums")
        self.engine = Sums(self.owner)
        super().__init__("sums", SERVED, self.engine, frozenset(core.Capability))

    def classify(self, *_: Any, **__: Any) -> Any:
        """Nothing is classified."""
        raise NotImplementedError

    def release(self) -> None:
        self.owner.close(lambda: None)


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as opened:
        yield opened


def rows_of(results: Sequence[core.BatchResult]) -> list[Any]:
    return [(row.tokens, row.finish_reason, repr(row.error)) for row in results]


GREEDY = GenerateConfig(max_tokens=6, return_logprobs=True)
SEEDED = GenerateConfig(max_tokens=6, temperature=0.8, seed=3)
SAMPLED = GenerateConfig(max_tokens=6, temperature=0.8)
PROMPTS = ["ab", "c", "ab", "", "ab", "c", "abc", "x", "x", "z" * 51]


@pytest.mark.parametrize("config", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_equal_prompts_are_generated_once(model: Model, config: GenerateConfig) -> None:
    together = model.batch_generate(PROMPTS, config)
    assert model.engine.prompts == ["ab", "c", "abc", "x"]
    counted, model.engine.prompts = model.metrics, []

    model.equal_rows = False
    each = model.batch_generate(PROMPTS, config)
    assert len(model.engine.prompts) == 8
    assert rows_of(together) == rows_of(each)
    assert [row.text for row in together] == [row.text for row in each]
    assert (counted.prompt_tokens, model.metrics.prompt_tokens) == (13, 13)
    assert counted.generated_tokens == sum(len(row.tokens) for row in together)
    assert counted.generated_tokens == model.metrics.generated_tokens
    assert (counted.cached_prompt_tokens, model.metrics.cached_prompt_tokens) == (6, 0)


def test_without_a_seed_each_row_draws_for_itself(model: Model) -> None:
    rows = model.batch_generate(["ab"] * 8, SAMPLED)
    assert model.engine.prompts == ["ab"] * 8
    assert len({row.tokens for row in rows}) > 1
    assert model.metrics.cached_prompt_tokens == 0


def test_fields_of_classify_make_no_row_repeatable(model: Model) -> None:
    """With ``labels_only`` classify draws nothing; ``batch_generate`` does."""
    config = GenerateConfig(max_tokens=6, temperature=0.8, labels=("a", "b"), labels_only=True)
    model.batch_generate(["ab"] * 8, config)
    assert len(model.engine.prompts) == 8


def test_errors_are_equal_and_each_rows_own(model: Model) -> None:
    one, two = model.batch_generate(["x", "x"], GREEDY)
    assert one.tokens == two.tokens
    assert len(one.tokens) == 2
    assert isinstance(one.error, OutOfMemoryError)
    assert isinstance(two.error, OutOfMemoryError)
    assert one.error is not two.error


@pytest.mark.parametrize("config", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_a_stream_yields_the_tokens_of_each_row(model: Model, config: GenerateConfig) -> None:
    prompts = ["ab", "c", "ab", "ab", "c", "abc"]
    found: list[list[core.Token]] = [[] for _ in prompts]
    for row, token in model.batch_stream(prompts, config):
        found[row].append(token)
    assert model.engine.prompts == ["ab", "c", "abc"]
    assert model.metrics.cached_prompt_tokens == 5

    model.equal_rows = False
    assert [row.tokens for row in model.batch_generate(prompts, config)] == list(map(tuple, found))


def test_a_stream_raises_the_error_of_the_first_row(model: Model) -> None:
    with pytest.raises(OutOfMemoryError):
        list(model.batch_stream(["ab", "x", "x"], GREEDY))


def test_a_stream_that_is_closed_stops_every_row(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SERVED, "rotates", True)  # nothing else ends it
    monkeypatch.setattr(SERVED, "stop_ids", frozenset())
    stream: Any = model.batch_stream(["ab", "ab", "c"], GREEDY, max_tokens=10**9)
    next(stream)
    stream.close()
    model.owner.run(model.engine.step)
    assert not model.engine.requests


def test_a_stream_that_is_closed_is_cancelled_though_its_work_was_done(model: Model) -> None:
    stream = model.submit("ab", core.GenerateConfig(max_tokens=3))
    next(stream)
    while model.engine.requests:
        time.sleep(0.001)
    stream.close()
    assert stream.finish_reason == "cancelled"
    assert stream.metrics.generated_tokens == 3


@pytest.mark.parametrize("equal", [True, False])
def test_a_cancel_reaches_every_row(model: Model, equal: bool) -> None:
    cancel = threading.Event()
    model.equal_rows = equal
    cancel.set()
    rows = model.batch_generate(["ab", "c", "ab"], GREEDY, cancel=cancel)
    assert [row.finish_reason for row in rows] == ["cancelled"] * 3
    assert [type(row.error) for row in rows] == [GenerationCancelled] * 3
    assert len({id(row.error) for row in rows}) == 3


def test_samples_of_equal_prompts_draw_alike_and_differ_from_one_another(model: Model) -> None:
    prompts = [[5, 6], [7], [5, 6]]
    rows = model.generate_tokens(prompts, SEEDED, num_samples=3)
    assert len(model.engine.prompts) == 2
    assert rows[:3] == rows[6:]
    assert len({row.ids for row in rows[:3]}) == 3
    model.equal_rows = False
    assert model.generate_tokens(prompts, SEEDED, num_samples=3) == rows


def test_greedy_samples_are_one(model: Model) -> None:
    rows = model.generate_tokens([5, 6], GREEDY, num_samples=4)
    assert rows == [rows[0]] * 4
    assert model.metrics.generated_tokens == 24
    assert model.metrics.prompt_tokens == 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("abx", max_size=3), max_size=12),
    st.sampled_from([GREEDY, SEEDED]),
    st.integers(1, 4),
)
def test_results_are_those_of_rows_that_run_each(
    prompts: list[str], config: GenerateConfig, most: int
) -> None:
    with Model() as model:
        together = model.batch_generate(prompts, config, max_tokens=most)
        assert len(model.engine.prompts) == len(set(prompts) - {""})
        model.equal_rows = False
        assert rows_of(model.batch_generate(prompts, config, max_tokens=most)) == rows_of(together)
