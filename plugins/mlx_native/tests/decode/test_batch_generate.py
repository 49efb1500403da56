"""``batch_generate`` and ``batch_stream``: every row as if it were alone, and its own troubles."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import core
import core.kit.base
from core_mlx_native.backend import Cpu
from core_mlx_native.decode.prefilling import Prefilling
from core_mlx_native.model import MlxModel
from core_runtime.tokenizer.model_tokenizer import Tokenizer

Checkpoint = Callable[..., Path]
PROMPTS = ["ab ab no", "a", "no no no no no no no no no", "x y z", "ab", "z" * 40]
CONTEXT = 128
SAMPLED = core.GenerateConfig(max_tokens=12, temperature=1.0, seed=5)
TOO_LONG = "x" * (CONTEXT + 1)
ENDLESS = core.GenerateConfig(max_tokens=10**9, timeout=300)  # at which a test has failed


@pytest.fixture(params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Iterator[MlxModel]:
    """A model that no token stops, with fewer slots than prompts."""
    with load(checkpoint, request.param, parallel_slots=4) as loaded:
        yield loaded


@pytest.fixture
def endless(checkpoint: Checkpoint) -> Iterator[MlxModel]:
    """Two slots, and generations that go on until something ends them."""
    options = {"context_len": 32, "context_overflow": "rotate", "parallel_slots": 2}
    with load(checkpoint, "llama", **options) as loaded:
        yield loaded


def load(checkpoint: Checkpoint, family: str, **options: Any) -> MlxModel:
    directory = checkpoint(family, max_position_embeddings=CONTEXT)
    (directory / "tokenizer_config.json").unlink()  # which names the EOS
    return Cpu().load_model(directory, core.LoadConfig(**options))


def ids(tokens: Any) -> list[int]:
    return [token.id for token in tokens]


def assert_a_slot_is_free(model: MlxModel) -> None:
    """A request that waits for ever ends with a timeout."""
    (result,) = model.batch_generate(["ab no"], max_tokens=3, timeout=300)
    assert (len(result.tokens), result.finish_reason, result.error) == (3, "length", None)


# ---------------------------------------------------------------- the call


def test_an_empty_batch_gives_an_empty_list(model: MlxModel) -> None:
    assert model.batch_generate([]) == []
    assert list(model.batch_stream([])) == []


@pytest.mark.parametrize("prompts", ["ab", b"no", None, 3, ["ab", 3], ["ab", None]])
def test_prompts_that_are_no_strings_are_a_type_error(model: MlxModel, prompts: Any) -> None:
    with pytest.raises(TypeError, match="batch_generate"):
        model.batch_generate(prompts)
    with pytest.raises(TypeError, match="batch_stream"):
        model.batch_stream(prompts)


@pytest.mark.parametrize("kind", [tuple, iter, dict.fromkeys])
def test_any_iterable_of_prompts_will_do(model: MlxModel, kind: Callable[..., Any]) -> None:
    expected = model.batch_generate(PROMPTS, max_tokens=4)
    assert model.batch_generate(kind(PROMPTS), max_tokens=4) == expected


def test_wrong_options_raise_at_the_call(model: MlxModel) -> None:
    foreign: dict[str, Any] = {"labels": ["ab"]}
    wrong: dict[str, Any] = {"max_tokens": 0}
    for call in (model.batch_generate, model.batch_stream):
        with pytest.raises(TypeError, match="labels"):
            call(PROMPTS, **foreign)
        with pytest.raises(core.InvalidOptionError, match="max_tokens"):
            call(PROMPTS, **wrong)


def test_keywords_win_and_foreign_fields_do_not_apply(model: MlxModel) -> None:
    config = core.GenerateConfig(max_tokens=2, labels=("ab",), return_logits=True)
    results = model.batch_generate(PROMPTS, config, max_tokens=5, return_logprobs=True)
    assert [len(result.tokens) for result in results] == [5] * len(PROMPTS)
    assert all(token.logprob is not None for result in results for token in result.tokens)


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize(
    "config",
    [
        core.GenerateConfig(max_tokens=12),
        SAMPLED,
        core.GenerateConfig(max_tokens=12, temperature=1.2, top_k=9, repeat_penalty=1.5, seed=0),
        core.GenerateConfig(max_tokens=12, temperature=0.8, top_p=0.9, min_p=0.01, seed=2**64 - 1),
        core.GenerateConfig(max_tokens=12, temperature=1.2, typical_p=0.7, top_k=50, seed=3),
    ],
    ids=["greedy", "sampled", "top_k", "top_p", "typical_p"],
)
def test_a_row_gets_what_generate_gives(model: MlxModel, config: core.GenerateConfig) -> None:
    results = model.batch_generate(PROMPTS, config)
    assert len({result.tokens for result in results}) > 2  # the prompt plays a part
    for prompt, result in zip(PROMPTS, results, strict=True):
        stream = model.generate(prompt, config)
        assert result.tokens == tuple(stream)
        assert result.finish_reason == stream.finish_reason == "length"
        assert result.error is None


def test_the_order_of_the_prompts_plays_no_part(model: MlxModel) -> None:
    results = model.batch_generate(PROMPTS, SAMPLED)
    assert model.batch_generate(PROMPTS[::-1], SAMPLED) == results[::-1]


def test_without_a_seed_equal_prompts_differ(model: MlxModel) -> None:
    results = model.batch_generate(["ab"] * 4, max_tokens=50, temperature=2.0)
    assert len({result.tokens for result in results}) == 4
    equal = model.batch_generate(["ab"] * 4, max_tokens=50, temperature=2.0, seed=0)
    assert len({result.tokens for result in equal}) == 1


@pytest.mark.parametrize("config", [core.GenerateConfig(max_tokens=12), SAMPLED])
def test_equal_prompts_are_computed_once(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, config: core.GenerateConfig
) -> None:
    prompts = [PROMPTS[i * i % len(PROMPTS)] for i in range(30)]
    sound = Prefilling.__init__
    begun: list[int] = []

    def counted(group: Prefilling, *args: Any) -> None:
        sound(group, *args)
        begun.append(sum(len(job.requests) for job in group.jobs))

    monkeypatch.setattr(Prefilling, "__init__", counted)
    with load(checkpoint, "gemma3", parallel_slots=4, options={"prefix_cache": 0}) as model:
        results = model.batch_generate(prompts, config, return_logprobs=True)
        assert sum(begun) == len(set(prompts))
        lengths = {prompt: len(model.encode(prompt)) for prompt in prompts}
        metrics = model.metrics
        streamed: list[list[core.Token]] = [[] for _ in prompts]
        for row, token in model.batch_stream(prompts, config, return_logprobs=True):
            streamed[row].append(token)
        assert sum(begun) == 2 * len(set(prompts))
        alone = {prompt: tuple(model.generate(prompt, config)) for prompt in set(prompts)}

    assert list(map(tuple, streamed)) == [result.tokens for result in results]
    for prompt, result in zip(prompts, results, strict=True):
        assert ids(result.tokens) == ids(alone[prompt])
        assert (result.finish_reason, result.error) == ("length", None)
    assert metrics.prompt_tokens == sum(lengths[prompt] for prompt in prompts)
    assert metrics.cached_prompt_tokens == metrics.prompt_tokens - sum(lengths.values())
    assert metrics.generated_tokens == 12 * len(prompts)


def test_equal_prompts_run_each_without_that_fast_path(checkpoint: Checkpoint) -> None:
    options = {"without": ["equal_rows"], "prefix_cache": 0}
    with load(checkpoint, "llama", options=options) as model:
        model.batch_generate(["ab"] * 3, max_tokens=2)
        assert model.metrics.cached_prompt_tokens == 0


def test_rows_end_for_their_own_reasons(model: MlxModel) -> None:
    plain = model.batch_generate(PROMPTS, SAMPLED)
    rows = [set(ids(result.tokens)) for result in plain]
    stop = min(id for id in rows[0] if not all(id in row for row in rows))
    results = model.batch_generate(PROMPTS, SAMPLED, stop_tokens=[stop])
    for result, whole in zip(results, plain, strict=True):
        found = ids(whole.tokens)
        end = found.index(stop) if stop in found else len(found)
        assert ids(result.tokens) == found[:end]
        assert result.finish_reason == ("stop" if stop in found else "length")
    assert {result.finish_reason for result in results} == {"stop", "length"}


def test_a_stop_string_cuts_each_rows_own_text(model: MlxModel) -> None:
    plain = model.batch_generate(PROMPTS, SAMPLED)
    stop = plain[2].text[3:5]
    results = model.batch_generate(PROMPTS, SAMPLED, stop=stop)
    for result, whole in zip(results, plain, strict=True):
        assert result.text == whole.text.split(stop)[0]


@pytest.mark.parametrize(
    "model", ["gemma3", pytest.param("llama", marks=pytest.mark.slow)], indirect=True
)
def test_five_hundred_prompts_through_four_slots(model: MlxModel) -> None:
    distinct = [f"{'no ' * (n % 5)}{'ab' * n}" for n in range(1, 26)]
    config = core.GenerateConfig(max_tokens=6, temperature=1.0, seed=1)
    expected = {prompt: tuple(model.generate(prompt, config)) for prompt in distinct}
    prompts = [distinct[n * n % 25] for n in range(500)]
    results = model.batch_generate(prompts, config)
    assert [result.tokens for result in results] == [expected[prompt] for prompt in prompts]


# ---------------------------------------------------------------- errors of rows


def test_what_is_wrong_with_one_prompt_is_its_rows_error(model: MlxModel) -> None:
    prompts = ["", "ab ab no", "ab \ud800", "a", TOO_LONG, "", "x y z"]
    results = model.batch_generate(prompts, SAMPLED)
    kinds = [type(result.error) for result in results]
    none = type(None)
    empty, long = core.EmptyPromptError, core.PromptTooLongError
    assert kinds == [empty, none, core.RequestError, none, long, empty, none]
    for prompt, result in zip(prompts, results, strict=True):
        if result.error is None:
            assert list(result.tokens) == list(model.generate(prompt, SAMPLED))
        else:
            assert (result.tokens, result.text, result.finish_reason) == ((), "", "error")
    assert isinstance(results[4].error, core.PromptTooLongError)
    assert (results[4].error.length, results[4].error.limit) == (CONTEXT + 1, CONTEXT)


def test_a_batch_of_nothing_but_errors(model: MlxModel) -> None:
    results = model.batch_generate(["", TOO_LONG])
    assert [result.finish_reason for result in results] == ["error", "error"]
    assert model.metrics.prompt_tokens == model.metrics.generated_tokens == 0


def test_metrics_add_up(model: MlxModel) -> None:
    results = model.batch_generate(["", *PROMPTS, TOO_LONG], SAMPLED, stop="x")
    found = model.metrics
    assert found.prompt_tokens == sum(len(model.encode(prompt)) for prompt in PROMPTS)
    assert found.generated_tokens == sum(len(result.tokens) for result in results)
    assert found.prefill_seconds > 0.0
    assert found.decode_seconds > 0.0
    assert found.prefill_seconds + found.decode_seconds <= found.total_seconds
    assert found.peak_memory_bytes >= found.active_memory_bytes > 0


def test_another_callers_step_is_counted_only_from_the_call_on(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = threading.Event()
    real = Prefilling.step

    def step(self: Prefilling, tokens: int) -> None:
        if not running.is_set():
            running.set()
            time.sleep(0.2)
        real(self, tokens)

    monkeypatch.setattr(Prefilling, "step", step)
    other = model.submit("no x", core.GenerateConfig(max_tokens=1))
    assert running.wait(60)
    time.sleep(0.05)
    model.batch_generate(["ab"], max_tokens=1)
    found = model.metrics
    assert 0.0 < found.prefill_seconds + found.decode_seconds <= found.total_seconds
    assert len(list(other)) == 1


# ---------------------------------------------------------------- cancel and timeout


class Asked:
    """A cancel token that says yes from the ``limit``-th time on that it is asked."""

    def __init__(self, limit: int) -> None:
        self.limit, self.times = limit, 0

    def is_set(self) -> bool:
        self.times += 1
        return self.times >= self.limit


def token_of_the_first_alone(model: MlxModel, first: str, others: list[str]) -> int:
    """A token that a greedy continuation of the first prompt has, and none of the others' 300.

    No test lets a row take more: it is asked at each token, 300 times in all.
    """
    found = ids(model.generate(first, max_tokens=30))
    rows = model.batch_generate(others, max_tokens=300)
    seen = {id for row in rows for id in ids(row.tokens)}
    return next(id for id in found if id not in seen)


def test_on_cancel_what_finished_stays_and_the_rest_is_marked(endless: MlxModel) -> None:
    prompts = ["ab", "no no", "a", "x y z"]  # two run, two wait
    stop = token_of_the_first_alone(endless, prompts[0], prompts[1:])
    alone = endless.batch_generate(prompts[:1], ENDLESS, stop_tokens=[stop])
    results = endless.batch_generate(prompts, ENDLESS, stop_tokens=[stop], cancel=Asked(300))
    assert results[0] == alone[0]
    assert results[0].finish_reason == "stop"
    for result in results[1:]:
        assert result.finish_reason == "cancelled"
        assert isinstance(result.error, core.GenerationCancelled)
    lengths = [len(result.tokens) for result in results[1:]]
    assert lengths[0] > lengths[1] > lengths[2] == 0
    whole = ids(endless.generate("no no", max_tokens=lengths[0]))
    assert ids(results[1].tokens) == whole  # what came before is good
    assert endless.metrics.generated_tokens == lengths[0]
    assert_a_slot_is_free(endless)


def test_cancelled_before_it_begins_nothing_is_run(
    endless: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel = threading.Event()
    cancel.set()
    with monkeypatch.context() as patch:
        patch.setattr(Prefilling, "step", lambda *_: pytest.fail("a prompt is run"))
        results = endless.batch_generate(["ab", "", "no"], ENDLESS, cancel=cancel)
    assert [result.finish_reason for result in results] == ["cancelled", "error", "cancelled"]
    assert isinstance(results[1].error, core.EmptyPromptError)
    assert_a_slot_is_free(endless)


def test_on_timeout_what_finished_stays(endless: MlxModel, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = ["ab", "no no", "a"]
    stop = token_of_the_first_alone(endless, prompts[0], prompts[1:])
    ticks = count()
    with monkeypatch.context() as patch:
        patch.setattr(core.kit.base, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
        results = endless.batch_generate(prompts, ENDLESS, stop_tokens=[stop], timeout=300)
    assert [result.finish_reason for result in results] == ["stop", "error", "error"]
    for result in results[1:]:
        assert isinstance(result.error, core.GenerationTimeout)
        assert result.error.seconds == 300
        assert result.tokens
    assert_a_slot_is_free(endless)


# ---------------------------------------------------------------- batch_stream


def test_the_streamed_pairs_are_the_batch(model: MlxModel) -> None:
    for config in (SAMPLED, core.GenerateConfig(max_tokens=12, return_logprobs=True)):
        rows: dict[int, list[core.Token]] = {}
        for row, token in model.batch_stream(PROMPTS, config):
            rows.setdefault(row, []).append(token)
        expected = model.batch_generate(PROMPTS, config)
        assert [rows[row] for row in range(len(PROMPTS))] == [list(r.tokens) for r in expected]


def test_tokens_of_several_rows_come_side_by_side(endless: MlxModel) -> None:
    stream = endless.batch_stream(["ab", "no"], ENDLESS)
    seen = [next(stream)[0] for _ in range(40)]
    assert set(seen[:10]) == set(seen[-10:]) == {0, 1}


def test_the_stream_begins_at_the_first_next(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode_batch(self: Tokenizer, texts: list[str]) -> list[list[int]]:
        raise AssertionError("the prompts are tokenised")

    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "encode_batch", encode_batch)
        stream = model.batch_stream(PROMPTS, max_tokens=2)
    assert len(list(stream)) == 2 * len(PROMPTS)


def test_the_first_rows_error_comes_behind_all_tokens(model: MlxModel) -> None:
    prompts = ["ab", TOO_LONG, "no", ""]
    stream = model.batch_stream(prompts, max_tokens=3)
    rows = [next(stream)[0] for _ in range(6)]
    assert sorted(rows) == [0, 0, 0, 2, 2, 2]
    with pytest.raises(core.PromptTooLongError):
        next(stream)
    assert list(stream) == []


def test_closing_the_stream_early_frees_its_rows(endless: MlxModel) -> None:
    stream = endless.batch_stream(["ab", "no", "x"], ENDLESS)
    seen = [next(stream) for _ in range(5)]
    assert isinstance(stream, Iterator)
    stream.close()  # type: ignore[attr-defined]
    assert list(stream) == []
    assert endless.metrics.generated_tokens >= len(seen)
    assert endless.metrics.prompt_tokens > 0
    assert_a_slot_is_free(endless)


def test_dropping_the_stream_frees_its_rows(endless: MlxModel) -> None:
    stream = endless.batch_stream(["ab", "no", "x"], ENDLESS)
    next(stream)
    del stream
    assert_a_slot_is_free(endless)


def test_cancelling_the_stream_raises_from_it(endless: MlxModel) -> None:
    cancel = threading.Event()
    stream = endless.batch_stream(["ab", "no", "x"], ENDLESS, cancel=cancel)
    next(stream)
    cancel.set()
    with pytest.raises(core.GenerationCancelled):
        list(stream)
    assert_a_slot_is_free(endless)


def test_closing_the_model_ends_every_row(endless: MlxModel) -> None:
    stream = endless.batch_stream(["ab", "no", "x"], ENDLESS)
    next(stream)
    endless.close()
    with pytest.raises(core.ModelClosedError):
        list(stream)
