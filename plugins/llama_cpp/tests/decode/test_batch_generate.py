"""Many prompts at once: each row what it is alone, whatever its neighbours and their options."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

import core
from core.errors import EmptyPromptError, GenerationCancelled, PromptTooLongError
from core_llama_cpp.model import LlamaModel
from core_runtime.sequences.engine import SequenceEngine
from core_runtime.waiting import PromptJob

PROMPTS = ["ab a", "b", "a b ab ab", "!?", "ab", "x y z", "Hello", "1 + 1 ="]


def alone(model: LlamaModel, prompt: str, count: int = 12, seed: int | None = None) -> list[int]:
    heat = 0.0 if seed is None else 1.0
    stream = model.generate(prompt, max_tokens=count, temperature=heat, seed=seed)
    return [token.id for token in stream]


def test_rows_are_what_generate_makes(tiny_model: LlamaModel) -> None:
    """More prompts than slots: a slot that is free is taken by the next one."""
    for seed in (None, 0, 7):
        wanted = [alone(tiny_model, prompt, seed=seed) for prompt in PROMPTS]
        heat = 0.0 if seed is None else 1.0
        rows = tiny_model.batch_generate(PROMPTS, max_tokens=12, temperature=heat, seed=seed)
        assert [[token.id for token in row.tokens] for row in rows] == wanted
        assert [row.error for row in rows] == [None] * len(PROMPTS)


def test_typical_rows_are_what_generate_makes_whatever_their_neighbours_ask(
    tiny_model: LlamaModel,
) -> None:
    options = core.GenerateConfig(max_tokens=12, temperature=1.2, typical_p=0.6, top_k=40, seed=11)
    others = core.GenerateConfig(max_tokens=12, temperature=1.5, top_p=0.9, seed=6)
    wanted = [[token.id for token in tiny_model.generate(prompt, options)] for prompt in PROMPTS]
    plain = [
        [token.id for token in tiny_model.generate(prompt, options, typical_p=1.0)]
        for prompt in PROMPTS
    ]
    assert wanted != plain

    rows = tiny_model.batch_generate(PROMPTS, options)
    assert [[token.id for token in row.tokens] for row in rows] == wanted
    beside = tiny_model.submit(PROMPTS[1], others)
    streams = [tiny_model.submit(prompt, options) for prompt in PROMPTS]
    assert [[token.id for token in stream] for stream in streams] == wanted
    list(beside)


@pytest.mark.parametrize("seed", [None, 7], ids=["greedy", "seeded"])
def test_equal_prompts_are_computed_once(
    tiny_model: LlamaModel, monkeypatch: pytest.MonkeyPatch, seed: int | None
) -> None:
    prompts = [PROMPTS[i * i % len(PROMPTS)] for i in range(20)]
    heat = 0.0 if seed is None else 1.0
    wanted = {prompt: alone(tiny_model, prompt, seed=seed) for prompt in prompts}
    begun: list[int] = []
    begin = SequenceEngine._begin

    def counted(engine: SequenceEngine, job: PromptJob) -> None:
        begun.append(len(job.requests))
        begin(engine, job)

    monkeypatch.setattr(SequenceEngine, "_begin", counted)
    rows = tiny_model.batch_generate(prompts, max_tokens=12, temperature=heat, seed=seed)
    assert [[token.id for token in row.tokens] for row in rows] == [wanted[p] for p in prompts]
    assert begun == [1] * len(wanted)
    repeated = sum(len(tiny_model.encode(p)) for p in prompts) - sum(
        len(tiny_model.encode(p)) for p in wanted
    )
    assert tiny_model.metrics.cached_prompt_tokens >= repeated > 0
    assert tiny_model.metrics.generated_tokens == sum(len(row.tokens) for row in rows)

    streamed: list[list[int]] = [[] for _ in prompts]
    for row, token in tiny_model.batch_stream(prompts, max_tokens=12, temperature=heat, seed=seed):
        streamed[row].append(token.id)
    assert streamed == [wanted[prompt] for prompt in prompts]


def test_without_a_seed_equal_prompts_draw_each_for_itself(tiny_model: LlamaModel) -> None:
    rows = tiny_model.batch_generate(["ab"] * 4, max_tokens=30, temperature=2.0)
    assert len({row.tokens for row in rows}) == 4


def test_rows_of_a_real_model(real_model: LlamaModel) -> None:
    prompts = ["The capital of France is", "Once upon a time", "def add(a, b):"] * 2
    wanted = [alone(real_model, prompt, 8) for prompt in prompts[:3]]
    rows = real_model.batch_generate(prompts, max_tokens=8)
    assert [[token.id for token in row.tokens] for row in rows] == wanted * 2


def test_each_rows_error_is_its_own(tiny_model: LlamaModel) -> None:
    rows = tiny_model.batch_generate(["", "ab", "!" * 600], max_tokens=3)
    assert isinstance(rows[0].error, EmptyPromptError)
    assert isinstance(rows[2].error, PromptTooLongError)
    assert [token.id for token in rows[1].tokens] == alone(tiny_model, "ab", 3)
    assert tiny_model.batch_generate([]) == []


def test_a_cancel_ends_what_still_runs(tiny_model: LlamaModel) -> None:
    class Soon:
        left = 30

        def is_set(self) -> bool:
            self.left -= 1
            return self.left < 0

    rows = tiny_model.batch_generate(PROMPTS, max_tokens=400, cancel=Soon())
    assert all(isinstance(row.error, GenerationCancelled) for row in rows)
    assert any(row.tokens for row in rows)
    assert len(alone(tiny_model, "ab")) == 12


def test_samples_share_one_prefill_and_differ(tiny_model: LlamaModel) -> None:
    """More samples than slots, too: they run in parts."""
    ids = tiny_model.encode("ab a")
    for samples in (2, 5):
        rows = tiny_model.generate_tokens(
            ids, num_samples=samples, max_tokens=10, temperature=1.0, seed=3
        )
        made = [row.ids[len(ids) :] for row in rows]
        assert list(made[0]) == alone(tiny_model, "ab a", 10, seed=3)
        assert len(set(made)) == samples
    greedy = tiny_model.generate_tokens(ids, num_samples=2, max_tokens=10)
    assert [list(row.ids[len(ids) :]) for row in greedy] == [alone(tiny_model, "ab a", 10)] * 2


def test_log_probabilities_are_those_of_score(tiny_model: LlamaModel) -> None:
    stream = tiny_model.generate("ab a", max_tokens=5, return_logprobs=True)
    tokens = list(stream)
    ids = tiny_model.encode("ab a" + "".join(token.text for token in tokens))
    assert ids == [*tiny_model.encode("ab a"), *(token.id for token in tokens)]
    score = tiny_model.score(["ab a"], ["".join(token.text for token in tokens)])[0]
    assert score.is_greedy
    assert score.token_logprobs == pytest.approx([token.logprob for token in tokens], abs=1e-4)


def test_threads_share_the_engine(tiny_model: LlamaModel) -> None:
    wanted = {prompt: alone(tiny_model, prompt) for prompt in PROMPTS}
    found: dict[str, list[int]] = {}

    def work(prompt: str) -> None:
        found[prompt] = alone(tiny_model, prompt)

    threads = [threading.Thread(target=work, args=(prompt,)) for prompt in PROMPTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == wanted


def test_a_request_waits_for_the_cells_that_it_may_need(tiny_gguf: Callable[..., Path]) -> None:
    """A slot is free, and two requests may come to need all cells: the third has its turn."""
    own = {"n_threads": 1, "cache_cells": 512}
    with core.load_model(tiny_gguf(), backend="llama_cpp", parallel_slots=3, options=own) as loaded:
        model = cast("LlamaModel", loaded)
        wanted = alone(model, "b", 30)
        config = core.GenerateConfig(max_tokens=250)
        large = [model.submit("ab", config) for _ in range(2)]
        cancelled = threading.Event()
        unwanted = model.submit("b", core.GenerateConfig(max_tokens=30, cancel=cancelled))
        last = model.submit("b", core.GenerateConfig(max_tokens=30))
        model._owner.run(lambda: None)  # by now it waits for cells, not for a slot
        cancelled.set()
        with pytest.raises(GenerationCancelled):
            next(unwanted)
        pool = model._passes._pool
        assert model._owner.run(lambda: pool.cells) < 30  # so those in front still run
        assert [token.id for token in last] == wanted
        assert [len(list(stream)) for stream in large] == [250, 250]
