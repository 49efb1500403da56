"""``score`` against log-probabilities that are read one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.classify import scheduler
from core_mlx_native.cpu import lanes as lanes_module
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.model import MlxModel
from core_mlx_native.network.prefill import prefill, read

Checkpoint = Callable[..., Path]
PAIRS = [
    ("ab ab no", " no ab x"),
    ("a", " a"),
    ("no no no no no no no no no no", "x"),
    ("x y z", "-ab no"),
    ("x", " no" * 30),
    ("ab no " * 15, "yes"),
]
TOLERANCE = 1e-4


@pytest.fixture(params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Iterator[MlxModel]:
    with load(checkpoint(request.param)) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def smollm2(smollm2_dir: Path) -> Iterator[MlxModel]:
    with load(smollm2_dir) as loaded:
        yield loaded


def load(directory: Path, **options: Any) -> MlxModel:
    return Cpu().load_model(directory, core.LoadConfig(**options))


def columns(pairs: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Prompts, and their continuations."""
    return [prompt for prompt, _ in pairs], [continuation for _, continuation in pairs]


def steps(model: MlxModel, ids: Sequence[int], start: int) -> tuple[list[float], bool]:
    """Log-probabilities of the ids from ``start`` on, each from a prefill of what precedes it."""
    decoder = model._loaded.decoder

    def read() -> tuple[list[float], bool]:
        found, greedy = [], True
        for end in range(start, len(ids)):
            hidden = prefill(decoder, [list(ids[:end])]).hidden[0, end - 1]
            logits = np.array(decoder.logits(hidden[None])[0], np.float64)
            total = logits.max() + np.log(np.exp(logits - logits.max()).sum())
            found.append(float(logits[ids[end]] - total))
            greedy = greedy and int(logits.argmax()) == ids[end]
        return found, greedy

    return model._owner.run(read)


def assert_scored(model: MlxModel, score: core.Score, ids: Sequence[int], start: int) -> None:
    expected, greedy = steps(model, ids, start)
    assert score.error is None
    assert score.token_logprobs == pytest.approx(expected, abs=TOLERANCE)
    assert score.logprob == pytest.approx(sum(expected), abs=TOLERANCE * len(expected))
    assert score.is_greedy == greedy


# ---------------------------------------------------------------- numbers


def test_scores_are_the_step_by_step_log_probabilities(model: MlxModel) -> None:
    scores = model.score(*columns(PAIRS))
    assert len(scores) == len(PAIRS)
    for (prompt, continuation), score in zip(PAIRS, scores, strict=True):
        start = len(model.encode(prompt))
        ids = model.encode(prompt + continuation)
        assert ids[:start] == model.encode(prompt)
        assert len(score.token_logprobs) == len(ids) - start
        assert_scored(model, score, ids, start)
    assert max(len(score.token_logprobs) for score in scores) == 30


def test_neighbours_and_batches_play_no_part(model: MlxModel, checkpoint: Checkpoint) -> None:
    together = model.score(*columns(PAIRS))
    family = "gemma3" if model.model_type == "gemma3_text" else "llama"
    with load(checkpoint(family, name="again"), options={"token_budget": 1}) as other:
        apart = other.score(*columns(PAIRS))
    for left, right in zip(together, apart, strict=True):
        assert left.token_logprobs == pytest.approx(right.token_logprobs, abs=TOLERANCE)


def test_a_long_continuation_goes_through_the_head_in_parts(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = model.score(*columns(PAIRS))
    monkeypatch.setattr(CpuOps, "head_floats", 7 * model.info.vocab_size)
    for score, whole in zip(model.score(*columns(PAIRS)), expected, strict=True):
        assert score.token_logprobs == pytest.approx(whole.token_logprobs, abs=TOLERANCE)
        assert score.is_greedy == whole.is_greedy


def test_a_continuation_that_joins_the_prompts_last_token(model: MlxModel) -> None:
    prompt, continuation = "no a", "b no"  # " a" and "b" make the token " ab"
    head, ids = model.encode(prompt), model.encode(prompt + continuation)
    start = len(head) - 1
    assert ids[:start] == head[:start]
    assert ids[start] != head[start]
    (score,) = model.score([prompt], [continuation])
    assert len(score.token_logprobs) == len(ids) - start
    assert_scored(model, score, ids, start)


def test_a_continuation_that_joins_the_whole_prompt_is_scored_as_it_is(model: MlxModel) -> None:
    assert len(model.encode("a" + "b")) == 1  # nothing is left that could predict it
    (score,) = model.score(["a"], ["b"])
    assert_scored(model, score, [*model.encode("a"), *model.encode("b")], 1)


def test_a_label_has_the_score_of_its_text(model: MlxModel) -> None:
    labels = ["ab", "no", "x ab no", "abc"]
    for prompt in ["ab ab no", "x y-"]:
        (result,) = model.classify([prompt], labels=labels, label_prefix="")
        scores = model.score([prompt] * len(labels), labels)
        assert result.logprobs is not None
        assert [score.logprob for score in scores] == pytest.approx(
            list(result.logprobs.values()), abs=TOLERANCE
        )
    (joined,) = model.classify(["a"], labels=["b"], label_prefix="")
    (score,) = model.score(["a"], ["b"])
    assert joined.logprobs is not None
    assert joined.logprobs["b"] == pytest.approx(score.logprob, abs=TOLERANCE)


def test_what_greedy_writes_is_greedy(model: MlxModel) -> None:
    prompts = ["ab ab no", "x y z", "z" * 20, "no x"]
    checked = 0
    for prompt, result in zip(prompts, model.batch_generate(prompts, max_tokens=6), strict=True):
        ids = [token.id for token in result.tokens]
        if model.encode(prompt + result.text) == [*model.encode(prompt), *ids]:
            checked += 1
            (same,) = model.score([prompt], [result.text])
            other = result.text[:-1] + ("q" if result.text[-1] != "q" else "w")
            (wrong,) = model.score([prompt], [other])
            assert same.is_greedy
            assert not wrong.is_greedy
            assert same.token_logprobs == pytest.approx(logprobs(model, prompt), abs=TOLERANCE)
    assert checked


def logprobs(model: MlxModel, prompt: str) -> list[float | None]:
    stream = model.generate(prompt, max_tokens=6, return_logprobs=True)
    return [token.logprob for token in stream]


def test_a_real_model_knows_better(smollm2: MlxModel) -> None:
    prompt = "The capital of France is"
    endings = [" Paris", " Berlin", " Paris, which", " Rome on the river"]
    scores = smollm2.score([prompt] * 4, endings)
    paris, berlin, longer, _ = scores
    assert paris.logprob > berlin.logprob + 1.0
    assert paris.is_greedy
    assert not berlin.is_greedy
    assert longer.token_logprobs[0] == pytest.approx(paris.logprob, abs=1e-3)
    start = len(smollm2.encode(prompt))
    assert_scored(smollm2, scores[3], smollm2.encode(prompt + endings[3]), start)


# ---------------------------------------------------------------- prefixes, lanes


SHARED = "ab no x " * 8  # longer than the window of Gemma's sliding layers
SHARING = [
    *((SHARED, f" {text}") for text in ("no", "ab no", "x y z " * 3)),
    *((SHARED + "yes ", text) for text in ("a", "b no")),
    *PAIRS,
]


@pytest.mark.parametrize("without", [(), ("last_layer",), ("sorted",), ("host_math",)])
@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("family", ["llama", "gemma3", "gemma2"])
def test_scores_behind_shared_prefixes_and_in_lanes_are_those_of_each_pair_alone(
    checkpoint: Checkpoint,
    monkeypatch: pytest.MonkeyPatch,
    family: str,
    lanes: int,
    without: tuple[str, ...],
) -> None:
    monkeypatch.setattr("core_mlx_native.loaded.usable_lanes", lambda: lanes)
    monkeypatch.setattr(scheduler, "_WORTH", 1)
    taken: list[int] = []
    real = lanes_module.run

    def watched(jobs: Any, check: Any) -> Any:
        taken.append(len(jobs))
        return real(jobs, check)

    monkeypatch.setattr(lanes_module, "run", watched)
    directory = checkpoint(family)
    with load(directory, options={"without": ("prefix", "lanes")}) as model:
        alone = [model.score([prompt], [continuation])[0] for prompt, continuation in SHARING]
        assert model.metrics.cached_prompt_tokens == 0
        assert not taken
    with load(directory, options={"without": without, "token_budget": 96}) as model:
        together = model.score(*columns(SHARING))
        metrics = model.metrics
        shared = len(model.encode(SHARED))
    assert 4 * (shared - 1) <= metrics.cached_prompt_tokens < metrics.prompt_tokens
    assert bool(taken) == (lanes == 2)
    for found, wanted in zip(together, alone, strict=True):
        assert found.token_logprobs == pytest.approx(wanted.token_logprobs, abs=TOLERANCE)
        assert found.is_greedy == wanted.is_greedy


def test_a_prefix_ends_before_the_first_token_that_is_scored(model: MlxModel) -> None:
    """Equal pairs share all that runs in front of the place that the first target is read at."""
    prompt, continuation = "ab no x " * 6, " no ab"
    model.equal_rows = False
    whole = model.score([prompt], [continuation])[0]
    scores = model.score([prompt] * 5, [continuation] * 5)
    fed = len(model.encode(prompt + continuation)) - 1
    metrics = model.metrics
    assert metrics.prompt_tokens == 5 * fed
    assert metrics.cached_prompt_tokens == 4 * (len(model.encode(prompt)) - 1)
    for score in scores:
        assert score.token_logprobs == pytest.approx(whole.token_logprobs, abs=TOLERANCE)


def test_equal_pairs_are_computed_once(model: MlxModel) -> None:
    prompt, continuation = "ab no x " * 6, " no ab"
    scores = model.score([prompt] * 5, [continuation] * 4 + [" no"])
    fed = len(model.encode(prompt + continuation)) - 1
    assert scores[:4] == [scores[0]] * 4
    shared = len(model.encode(prompt)) - 1  # with the other one
    assert model.metrics.cached_prompt_tokens in (3 * fed, 3 * fed + shared)
    model.equal_rows = False
    alone = model.score([prompt], [continuation])[0]
    assert scores[0].token_logprobs == pytest.approx(alone.token_logprobs, abs=TOLERANCE)


# ---------------------------------------------------------------- rows, errors, metrics


def test_no_pairs_give_no_scores(model: MlxModel) -> None:
    assert model.score([], []) == []


def test_wrong_arguments_are_type_errors(model: MlxModel) -> None:
    wrong: list[tuple[Any, Any]] = [("ab", ["no"]), (["ab"], "no"), (["ab"], [3]), (None, ["no"])]
    for prompts, continuations in wrong:
        with pytest.raises(TypeError, match="score"):
            model.score(prompts, continuations)
    with pytest.raises(TypeError, match="got 1 for 2"):
        model.score(["ab", "no"], ["x"])


def test_what_is_wrong_with_one_pair_is_its_own_error(model: MlxModel) -> None:
    limit = model.info.context_length
    pairs = [
        ("", " no"),
        ("ab", " no"),
        ("ab", ""),
        ("ab \ud800", " no"),
        ("ab", " \ud800"),
        ("x" * limit, "yy"),
        ("x" * limit, "y"),  # its last token is never fed
    ]
    scores = model.score(*columns(pairs))
    kinds = [type(score.error) for score in scores]
    empty, none = core.EmptyPromptError, type(None)
    request, long = core.RequestError, core.PromptTooLongError
    assert kinds == [empty, none, empty, request, request, long, none]
    assert "continuation is empty" in str(scores[2].error)
    assert "continuation is not valid" in str(scores[4].error)
    assert_scored(model, scores[1], model.encode("ab no"), len(model.encode("ab")))
    for score in scores:
        if score.error is not None:
            assert (score.logprob, score.token_logprobs, score.is_greedy) == (0.0, (), False)


def test_metrics_count_the_tokens_that_were_run(model: MlxModel) -> None:
    prompts, continuations = ["ab ab", "", "x"], [" no x", " no", " no" * 9]
    model.score(prompts, continuations)
    fed = [len(model.encode(p + c)) - 1 for p, c in zip(prompts, continuations, strict=True) if p]
    found = model.metrics
    assert (found.prompt_tokens, found.generated_tokens) == (sum(fed), 0)
    assert 0.0 < found.prefill_seconds <= found.total_seconds
    assert found.peak_memory_bytes > 0


def test_out_of_memory_fails_the_pair_that_does_not_fit(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = model.score(*columns(PAIRS))

    def scarce(decoder: Any, prompts: list[list[int]], *rest: Any, **options: Any) -> Any:
        if sum(map(len, prompts)) > 32:
            raise RuntimeError("[malloc] Unable to allocate 1 bytes")
        return read(decoder, prompts, *rest, **options)

    monkeypatch.setattr(scheduler, "read", scarce)
    scores = model.score(*columns(PAIRS))
    failed = [index for index, score in enumerate(scores) if score.error is not None]
    assert failed == [5]  # the others fit, if not all together
    assert isinstance(scores[5].error, core.OutOfMemoryError)
    for score, whole in zip(scores[:5], expected[:5], strict=True):
        assert score.token_logprobs == pytest.approx(whole.token_logprobs, abs=TOLERANCE)


def test_logits_that_are_no_numbers_are_an_error(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    file = str(directory / "model.safetensors")
    tensors = mx.load(file)
    assert isinstance(tensors, dict)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * float("nan")
    mx.save_safetensors(file, tensors)
    with load(directory) as model:
        (score,) = model.score(["ab"], [" no"])
    assert isinstance(score.error, core.InvalidModelError)
