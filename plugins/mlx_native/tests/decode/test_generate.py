"""``generate`` as the contract has it: what comes when, what ends it, what it says of itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import core
import core.kit.base
from core_mlx_native.backend import Cpu
from core_mlx_native.decode.engine import MlxEngine
from core_mlx_native.decode.prefilling import Prefilling
from core_mlx_native.model import MlxModel
from core_runtime.tokenizer.model_tokenizer import Tokenizer

Checkpoint = Callable[..., Path]
PROMPT = "ab ab no"
CONTEXT = 256
SURROGATE = "ab \ud800"
SAMPLED = core.GenerateConfig(max_tokens=40, temperature=1.0, seed=7)


@pytest.fixture(params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Iterator[MlxModel]:
    """A model that no token stops."""
    with load(stopless(checkpoint, request.param)) as loaded:
        yield loaded


@pytest.fixture
def endless(checkpoint: Checkpoint) -> Iterator[MlxModel]:
    """A model whose generations go on until something ends them."""
    directory = stopless(checkpoint, "llama", name="endless")
    with load(directory, context_len=32, context_overflow="rotate", parallel_slots=2) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def smollm2(smollm2_dir: Path) -> Iterator[MlxModel]:
    with load(smollm2_dir) as loaded:
        yield loaded


def stopless(checkpoint: Checkpoint, family: str, **changes: Any) -> Path:
    directory = checkpoint(family, **{"max_position_embeddings": CONTEXT, **changes})
    (directory / "tokenizer_config.json").unlink()  # which names the EOS
    return directory


def load(directory: Path, **options: Any) -> MlxModel:
    return Cpu().load_model(directory, core.LoadConfig(**options))


def ids(stream: core.TokenStream) -> list[int]:
    return [token.id for token in stream]


def text(stream: core.TokenStream) -> str:
    return "".join(token.text for token in stream)


def assert_works(model: MlxModel) -> None:
    stream = model.generate(PROMPT, max_tokens=3)
    assert len(list(stream)) == 3
    assert stream.finish_reason == "length"


def assert_over(stream: core.TokenStream) -> None:
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(stream)


# ---------------------------------------------------------------- the call


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 0},
        {"temperature": -0.1},
        {"top_p": 0.0},
        {"seed": -1},
        {"stop": ("",)},
        {"stop_tokens": (-1,)},
        {"timeout": 0},
        {"cancel": "now"},
    ],
)
def test_a_wrong_value_raises_at_the_call(model: MlxModel, options: dict[str, Any]) -> None:
    with pytest.raises(core.InvalidOptionError) as caught:
        model.generate(PROMPT, **options)
    assert caught.value.option in options


@pytest.mark.parametrize("name", ["labels", "label_prefix", "return_logits", "max_token"])
def test_a_foreign_or_unknown_keyword_is_a_type_error(model: MlxModel, name: str) -> None:
    options: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError, match=f"generate.. has no option '{name}'"):
        model.generate(PROMPT, **options)


@pytest.mark.parametrize("prompt", [None, 3, b"ab", ["ab"]])
def test_a_prompt_that_is_no_string_is_a_type_error(model: MlxModel, prompt: Any) -> None:
    with pytest.raises(TypeError, match="strings"):
        model.generate(prompt)


def test_a_config_of_another_kind_is_a_type_error(model: MlxModel) -> None:
    config: Any = core.LoadConfig()
    with pytest.raises(TypeError, match="GenerateConfig"):
        model.generate(PROMPT, config)


def test_keywords_win_over_the_config(model: MlxModel) -> None:
    config = core.GenerateConfig(max_tokens=2, return_logprobs=True)
    tokens = list(model.generate(PROMPT, config, max_tokens=5))
    assert len(tokens) == 5
    assert all(token.logprob is not None for token in tokens)
    assert config.max_tokens == 2


def test_a_configs_fields_of_other_operations_do_not_apply(model: MlxModel) -> None:
    config = core.GenerateConfig(
        max_tokens=5, labels=("ab", "no"), label_prefix="-", return_logits=True
    )
    assert list(model.generate(PROMPT, config)) == list(model.generate(PROMPT, max_tokens=5))


def test_logprobs_come_only_when_asked_for(model: MlxModel) -> None:
    plain = list(model.generate(PROMPT, max_tokens=4))
    asked = list(model.generate(PROMPT, max_tokens=4, return_logprobs=True))
    assert [token.logprob for token in plain] == [None] * 4
    assert all(token.logprob is not None and token.logprob < 0.0 for token in asked)
    assert [token.id for token in asked] == [token.id for token in plain]


def test_nothing_happens_before_the_first_next(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    for kind, name in [(Tokenizer, "encode"), (MlxEngine, "submit"), (Prefilling, "step")]:
        monkeypatch.setattr(kind, name, noted(happened, getattr(kind, name)))
    stream = model.generate(PROMPT, max_tokens=2)
    model.memory()  # behind whatever the owner thread was given
    assert happened == []
    assert stream.finish_reason is None
    assert stream.metrics == core.GenerateMetrics()
    next(stream)
    assert set(happened) == {"encode", "submit", "step"}


def noted(happened: list[str], real: Callable[..., Any]) -> Callable[..., Any]:
    def replacement(*args: Any, **options: Any) -> Any:
        happened.append(real.__name__)
        return real(*args, **options)

    return replacement


# ---------------------------------------------------------------- the end, and the metrics


def test_it_ends_with_its_reason_and_stays_ended(model: MlxModel) -> None:
    stream = model.generate(PROMPT, max_tokens=3)
    assert iter(stream) is stream
    tokens = [next(stream) for _ in range(3)]
    before = stream.finish_reason
    assert before is None
    assert_over(stream)
    assert stream.finish_reason == "length"
    assert [token.id for token in tokens] == ids(model.generate(PROMPT, max_tokens=3))


def test_metrics_are_final_at_the_end_and_add_up(model: MlxModel) -> None:
    stream = model.generate(PROMPT, max_tokens=20)
    next(stream)
    assert stream.metrics == core.GenerateMetrics()
    tokens = [None, *stream]
    found = stream.metrics
    assert found.prompt_tokens == len(model.encode(PROMPT))
    assert found.cached_prompt_tokens == 0
    assert found.generated_tokens == len(tokens) == 20
    assert found.prefill_seconds > 0.0
    assert found.decode_seconds > 0.0
    assert found.prefill_seconds + found.decode_seconds <= found.total_seconds
    assert found.peak_memory_bytes >= found.active_memory_bytes > 0
    assert model.metrics == found
    list(model.generate("ab", max_tokens=1))
    assert stream.metrics == found


def test_metrics_count_the_tokens_that_came_out(model: MlxModel) -> None:
    whole = list(model.generate(PROMPT, SAMPLED))
    stop = "".join(token.text for token in whole)[10:14]
    stream = model.generate(PROMPT, SAMPLED, stop=stop)
    assert len(list(stream)) == stream.metrics.generated_tokens < len(whole)


def test_metrics_are_of_the_calling_threads_last_call(model: MlxModel) -> None:
    list(model.generate(PROMPT, max_tokens=2))
    mine = model.metrics
    seen: list[core.GenerateMetrics] = []

    def other() -> None:
        seen.append(model.metrics)
        list(model.generate("ab", max_tokens=7))
        seen.append(model.metrics)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen[0] == core.GenerateMetrics()
    assert (seen[1].prompt_tokens, seen[1].generated_tokens) == (len(model.encode("ab")), 7)
    assert model.metrics == mine
    assert (mine.prompt_tokens, mine.generated_tokens) == (len(model.encode(PROMPT)), 2)


def test_a_full_context_ends_it_with_length(checkpoint: Checkpoint) -> None:
    with load(stopless(checkpoint, "llama"), context_len=16) as model:
        for prompt in ["ab", "no no no", "x" * 16]:
            size = len(model.encode(prompt))
            stream = model.generate(prompt, max_tokens=100)
            # The last token is drawn from a context that is full, and need not fit in.
            assert len(list(stream)) == max(1, 16 - size)
            assert stream.finish_reason == "length"
        assert size == 16


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ("", core.EmptyPromptError),
        (SURROGATE, core.RequestError),
        ("a " * (CONTEXT + 1), core.PromptTooLongError),
    ],
)
def test_a_prompt_that_cannot_run_raises_from_the_stream(
    model: MlxModel, prompt: str, error: type[core.RequestError]
) -> None:
    stream = model.generate(prompt)
    with pytest.raises(error) as caught:
        next(stream)
    if isinstance(caught.value, core.PromptTooLongError):
        assert (caught.value.length, caught.value.limit) == (len(model.encode(prompt)), CONTEXT)
    assert stream.finish_reason == "error"
    assert stream.metrics == core.GenerateMetrics()
    assert_over(stream)
    assert_works(model)


def test_after_close_every_method_says_so(checkpoint: Checkpoint) -> None:
    model = load(checkpoint())
    stream, rows = model.generate(PROMPT), model.batch_stream([PROMPT])
    model.close()
    turns = [core.Message("user", "ab")]
    calls: list[Callable[[], object]] = [
        lambda: model.generate(PROMPT),
        lambda: model.chat(turns),
        lambda: model.classify([PROMPT]),
        lambda: model.batch_generate([PROMPT]),
        lambda: model.batch_stream([PROMPT]),
        lambda: model.submit(PROMPT),
        lambda: model.generate_tokens([1, 2]),
        lambda: model.score(["ab"], ["no"]),
        lambda: model.inspect_attention(PROMPT),
        lambda: model.encode(PROMPT),
        lambda: model.decode([1]),
        lambda: model.render_chat(turns),
        model.memory,
        model.reset_peak_memory,
        lambda: next(stream),
        lambda: next(rows),
    ]
    for call in calls:
        with pytest.raises(core.ModelClosedError):
            call()
    assert_over(stream)


def test_closing_the_model_ends_an_open_stream_with_an_error(endless: MlxModel) -> None:
    stream = endless.generate(PROMPT, max_tokens=10**9, timeout=300)
    next(stream)
    endless.close()
    with pytest.raises(core.ModelClosedError):
        list(stream)
    assert stream.finish_reason == "error"
    assert_over(stream)
    stream.close()


# ---------------------------------------------------------------- cancel and timeout


class Asked:
    """A cancel token that says yes from the ``limit``-th time on that it is asked."""

    def __init__(self, limit: int) -> None:
        self.limit, self.times = limit, 0

    def is_set(self) -> bool:
        self.times += 1
        return self.times >= self.limit


def test_cancelled_before_it_begins_nothing_is_run(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_works(model)
    happened: list[str] = []
    monkeypatch.setattr(Prefilling, "step", noted(happened, Prefilling.step))
    cancel = threading.Event()
    cancel.set()
    stream = model.generate(PROMPT, cancel=cancel)
    with pytest.raises(core.GenerationCancelled):
        next(stream)
    assert stream.finish_reason == "cancelled"
    assert happened == []
    assert_over(stream)
    assert_works(model)


def test_cancelled_in_the_middle_what_came_is_good(endless: MlxModel) -> None:
    expected = ids(endless.generate(PROMPT, max_tokens=3))
    cancel = threading.Event()
    stream = endless.generate(PROMPT, max_tokens=10**9, timeout=300, cancel=cancel)
    assert [next(stream).id for _ in range(3)] == expected
    cancel.set()
    with pytest.raises(core.GenerationCancelled):
        list(stream)
    assert stream.finish_reason == "cancelled"
    assert stream.metrics.generated_tokens >= 3
    assert_over(stream)
    assert_works(endless)


def test_cancel_is_looked_at_between_the_chunks_of_a_prompt(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(Prefilling, "step", noted(steps, Prefilling.step))
    with load(stopless(checkpoint, "llama"), options={"prefill_chunk": 8}) as model:
        prompt = "x" * 200  # 25 chunks
        stream = model.generate(prompt, cancel=Asked(6))
        with pytest.raises(core.GenerationCancelled):
            next(stream)
        assert stream.metrics.generated_tokens == 0
        assert 0 < len(steps) < 6
        assert_works(model)


def test_a_timeout_ends_the_stream_between_two_tokens(
    endless: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(core.kit.base, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stream = endless.generate(PROMPT, max_tokens=10**9, timeout=5)
    next(stream)
    now[0] = 4.9
    next(stream)
    now[0] = 5.0
    with pytest.raises(core.GenerationTimeout) as caught:
        list(stream)
    assert caught.value.seconds == 5
    assert stream.finish_reason == "error"
    assert_over(stream)
    assert_works(endless)


def test_the_time_of_a_timeout_runs_from_the_first_next(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(core.kit.base, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stream = model.generate(PROMPT, max_tokens=2, timeout=5)
    now[0] = 100.0
    assert len(list(stream)) == 2


# ---------------------------------------------------------------- stop


def test_a_stop_string_ends_the_text_before_it(model: MlxModel) -> None:
    tokens = list(model.generate(PROMPT, SAMPLED))
    whole = "".join(token.text for token in tokens)
    assert len(whole) > 30
    spans = st.tuples(st.integers(0, len(whole) - 1), st.integers(1, 8))

    @settings(max_examples=25)
    @given(st.lists(spans, min_size=1, max_size=3))
    def check(parts: list[tuple[int, int]]) -> None:
        stops = [whole[start : start + size] for start, size in parts]
        stream = model.generate(PROMPT, SAMPLED, stop=stops)
        found = list(stream)
        assert "".join(token.text for token in found) == whole[: min(map(whole.find, stops))]
        assert stream.finish_reason == "stop"
        assert [token.id for token in found] == [token.id for token in tokens[: len(found)]]

    check()


def test_a_stop_string_that_does_not_come_changes_nothing(model: MlxModel) -> None:
    tokens = list(model.generate(PROMPT, SAMPLED))
    whole = "".join(token.text for token in tokens)
    stream = model.generate(PROMPT, SAMPLED, stop=[whole[-3:] + "?", "\x00"])
    assert list(stream) == tokens  # the last three at once
    assert stream.metrics.generated_tokens == len(tokens)
    assert stream.finish_reason == "length"


def test_one_stop_string_needs_no_tuple(model: MlxModel) -> None:
    stop = text(model.generate(PROMPT, SAMPLED))[6:8]
    one = list(model.generate(PROMPT, SAMPLED, stop=stop))
    assert one == list(model.generate(PROMPT, SAMPLED, stop=(stop,)))


def test_stop_tokens_end_it_and_are_not_emitted(model: MlxModel) -> None:
    whole = ids(model.generate(PROMPT, SAMPLED))
    for stop in set(whole):
        stream = model.generate(PROMPT, SAMPLED, stop_tokens=[stop])
        assert ids(stream) == whole[: whole.index(stop)]
        assert stream.finish_reason == "stop"
    unseen = next(id for id in range(model.info.vocab_size) if id not in whole)
    assert ids(model.generate(PROMPT, SAMPLED, stop_tokens=[unseen, 10**9])) == whole


def test_max_tokens_counts_generated_tokens(model: MlxModel) -> None:
    whole = ids(model.generate(PROMPT, SAMPLED))
    for count in (1, 2, 39):
        stream = model.generate(PROMPT, SAMPLED, max_tokens=count)
        assert ids(stream) == whole[:count]
        assert stream.finish_reason == "length"
    late = next(i for i, id in enumerate(whole) if i > 3 and id not in whole[:i])
    for count, reason in ((late, "length"), (late + 1, "stop")):
        stream = model.generate(PROMPT, SAMPLED, max_tokens=count, stop_tokens=[whole[late]])
        assert ids(stream) == whole[:late]
        assert stream.finish_reason == reason


def test_the_models_own_end_token_is_never_emitted(checkpoint: Checkpoint) -> None:
    plain = stopless(checkpoint, "llama", name="plain")
    with load(plain) as model:
        whole = ids(model.generate(PROMPT, SAMPLED))
    late = next(i for i, id in enumerate(whole) if i > 3 and id not in whole[:i])
    (plain / "generation_config.json").write_text(json.dumps({"eos_token_id": [whole[late]]}))
    with load(plain) as model:
        stream = model.generate(PROMPT, SAMPLED)
        assert ids(stream) == whole[:late]
        assert stream.finish_reason == "stop"
        # The caller's own come on top of it.
        assert (
            ids(model.generate(PROMPT, SAMPLED, stop_tokens=[whole[2]]))
            == (whole[: whole.index(whole[2])])
        )


# ---------------------------------------------------------------- seeds


def test_the_same_seed_gives_the_same_tokens(model: MlxModel) -> None:
    first = ids(model.generate(PROMPT, SAMPLED))
    mx.random.seed(3)  # the global state plays no part
    list(model.generate("no", SAMPLED, seed=None))
    assert ids(model.generate(PROMPT, SAMPLED)) == first
    assert ids(model.generate(PROMPT, SAMPLED, seed=8)) != first


def test_zero_is_a_seed(model: MlxModel) -> None:
    first = ids(model.generate(PROMPT, SAMPLED, seed=0))
    assert ids(model.generate(PROMPT, SAMPLED, seed=0)) == first


def test_without_a_seed_each_call_draws_anew(model: MlxModel) -> None:
    config = core.GenerateConfig(max_tokens=CONTEXT // 2, temperature=2.0)
    drawn = {tuple(ids(model.generate(PROMPT, config))) for _ in range(3)}
    assert len(drawn) == 3


def test_each_step_draws_with_luck_of_its_own(model: MlxModel) -> None:
    # So hot that all tokens are equally likely: what decides is luck alone.
    drawn = ids(model.generate(PROMPT, max_tokens=60, temperature=1e6, seed=3))
    assert len(set(drawn)) > 30


def test_without_a_temperature_it_is_greedy_whatever_the_seed(model: MlxModel) -> None:
    first = ids(model.generate(PROMPT, max_tokens=20))
    assert ids(model.generate(PROMPT, max_tokens=20, seed=5)) == first
    assert ids(model.generate(PROMPT, max_tokens=20, temperature=1.0, top_k=1)) == first


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 5},
        {"temperature": 1.3, "top_p": 0.8, "min_p": 0.01},
        {"temperature": 1.0, "repeat_penalty": 1.8},
        {"repeat_penalty": 3.0},
    ],
    ids=str,
)
def test_classify_draws_what_generate_draws_first(model: MlxModel, options: dict[str, Any]) -> None:
    prompts = [PROMPT, "no no x", "a", "z y ab no no"]
    drawn = set()
    for seed in range(6):
        results = model.classify(prompts, **options, seed=seed)
        for prompt, result in zip(prompts, results, strict=True):
            first = next(model.generate(prompt, **options, seed=seed, max_tokens=1))
            assert result.token is not None
            assert result.token.id == first.id
            drawn.add((prompt, first.id))
    assert (len(drawn) > len(prompts)) == ("temperature" in options)


# ---------------------------------------------------------------- text of a real model


def test_no_chunk_of_text_ends_inside_a_character(smollm2: MlxModel) -> None:
    prompts = ["🎉🥳👩‍🚀 🎉🥳👩‍🚀 🎉🥳", "中文字符,中文字符,中文", "ὦ ἄνδρες, ὦ ἄνδρες, ὦ"]
    greedy = core.GenerateConfig(max_tokens=14)
    hot = core.GenerateConfig(max_tokens=14, temperature=1.5, seed=2)
    both = [(prompt, config) for prompt in prompts for config in (greedy, hot)]
    streams = [smollm2.submit(*pair) for pair in both]  # all at once: that is faster
    for (prompt, config), stream in zip(both, streams, strict=True):
        tokens = list(stream)
        whole = "".join(token.text for token in tokens)
        before = smollm2.encode(prompt)
        assert smollm2.decode(before) == prompt
        assert prompt + whole == smollm2.decode(before + [token.id for token in tokens])
        whole.encode()
        if config is greedy:
            assert any(not token.text for token in tokens), "no character was split"
            assert "\ufffd" not in whole[:-1]
            cut = text(smollm2.generate(prompt, config, stop=whole[2]))
            assert cut == whole[: whole.index(whole[2])]
