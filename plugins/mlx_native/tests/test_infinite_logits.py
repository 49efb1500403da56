"""Logits that are NaN or infinite are their row's error, in every operation; neighbours stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import core
from core.types import BatchResult, ClassifyResult
from core_mlx_native.backend import Cpu
from core_mlx_native.chosen import FastPaths
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.model import MlxModel
from core_mlx_native.network.ops import Ops

Checkpoint = Callable[..., Path]
Arrays = dict[str, np.ndarray]

TARGET = "~"  # the token whose logit becomes infinite
PLUS, MINUS, NAN = "!", "?", "#"  # behind these it is +inf, -inf; or all logits are NaN
TO_PLUS, TO_NAN = "$", "%"  # behind these, the next token is PLUS, or NAN
INF, LEAD_PLUS, LEAD_NAN = 0, 1, 2  # the coordinates of the residual stream that do it
SOUND = ["ab no", "a", "no no no no no no no no no", "b ab ab ab"]
LABELS = ["ab", "no", "abc no"]
HUGE = 3e38
TOLERANCE = 1e-4


def token(text: str) -> int:
    return 2 + ord(text) - 33


def mark(weights: Arrays, head: str, *, huge: float = HUGE, nan: bool = True) -> None:
    """Change weights so that the texts above do what is said there, and nothing else does.

    Three coordinates of the residual stream are written by the embedding alone.
    """
    special = [INF, LEAD_PLUS, LEAD_NAN]
    for name, array in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            array[special] = 0.0
    weights["model.norm.weight"][special] = 0.0 if head == "model.embed_tokens.weight" else 1.0

    embedding = weights["model.embed_tokens.weight"]
    embedding[:, special] = 0.0
    for text, place, value in (
        (PLUS, INF, 30.0),
        (MINUS, INF, -30.0),
        (TO_PLUS, LEAD_PLUS, 30.0),
        (TO_NAN, LEAD_NAN, 30.0),
    ):
        embedding[token(text), place] = value
    if nan:
        embedding[token(NAN)] = np.nan

    rows = weights[head]
    rows[token(TARGET)], rows[token(TARGET), INF] = 0.0, huge
    rows[token(PLUS), LEAD_PLUS] = rows[token(NAN), LEAD_NAN] = 100.0


def changed(directory: Path, change: Callable[[Arrays], None]) -> Path:
    file = directory / "model.safetensors"
    tensors = mx.load(str(file))
    assert isinstance(tensors, dict)
    weights = {name: np.array(tensor) for name, tensor in tensors.items()}
    change(weights)
    file.unlink()
    mx.save_safetensors(str(file), {name: mx.array(weights[name]) for name in weights})
    return directory


@pytest.fixture
def directory(checkpoint: Checkpoint) -> Path:
    written = changed(checkpoint("llama"), lambda weights: mark(weights, "lm_head.weight"))
    (written / "chat_template.jinja").write_text("{{ messages[0].content }}")
    return written


PATHS: dict[str, dict[str, Any]] = {
    "fast": {},
    "plain": {"without": [*FastPaths.__dataclass_fields__]},
}


@pytest.fixture(params=PATHS)
def model(directory: Path, request: pytest.FixtureRequest) -> Iterator[MlxModel]:
    config = core.LoadConfig(parallel_slots=3, options=PATHS[request.param])
    with Cpu().load_model(directory, config) as loaded:
        yield loaded


def broken(error: Exception | None, values: str = "logits") -> bool:
    return isinstance(error, core.InvalidModelError) and f"model's {values}" in str(error)


# ------------------------------------------------------------------------------- classify

OPTIONS: list[dict[str, Any]] = [
    {},
    {"return_logits": True},
    {"return_logprobs": True},
    {"temperature": 1.0, "seed": 1},
    {"temperature": 0.7, "seed": 1, "top_p": 0.9, "top_k": 5, "repeat_penalty": 1.3},
    {"labels": LABELS},
    {"labels": LABELS[:2], "temperature": 1.0, "seed": 1, "return_logprobs": True},
    {"labels": LABELS, "labels_only": True},
    {"labels": [*LABELS, TARGET], "label_prefix": "", "labels_only": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_classify_has_the_error_in_the_row_and_the_neighbours_as_they_are(
    model: MlxModel, options: dict[str, Any]
) -> None:
    bad = [NAN] if options.get("labels") == LABELS and "labels_only" in options else [NAN, PLUS]
    prompts = [text for pair in zip(SOUND, bad * 2, strict=False) for text in pair]
    alone = [model.classify([text], **options)[0] for text in prompts]
    for results in (
        model.classify(prompts, **options),
        list(model.classify_iter(iter(prompts), **options)),
        alone,
    ):
        for prompt, result, wanted in zip(prompts, results, alone, strict=True):
            if prompt in bad:
                assert broken(result.error)
                assert (result.token, result.label, result.logits) == (None, None, None)
            else:
                assert result.error is None
                assert_near(result, wanted)


def assert_near(result: ClassifyResult, wanted: ClassifyResult) -> None:
    assert (result.label, result.token and result.token.id) == (
        wanted.label,
        wanted.token and wanted.token.id,
    )
    assert result.probabilities == (
        None if wanted.probabilities is None else pytest.approx(wanted.probabilities, abs=TOLERANCE)
    )


def test_one_impossible_token_is_no_error(model: MlxModel) -> None:
    """A head may mask tokens with -infinity."""
    [result] = model.classify([MINUS], return_logits=True, return_logprobs=True)
    assert result.error is None
    assert result.token is not None
    assert result.token.logprob is not None
    assert result.logits is not None
    assert result.logits[token(TARGET)] == -np.inf
    assert np.isfinite(np.delete(np.array(result.logits), token(TARGET))).all()
    assert np.isfinite(result.token.logprob)

    labels = ["a", TARGET]
    for only in (False, True):
        [result] = model.classify([MINUS], labels=labels, label_prefix="", labels_only=only)
        assert result.probabilities == {"a": 1.0, TARGET: 0.0}
    [score] = model.score([MINUS], [TARGET])
    assert (score.error, score.logprob) == (None, -np.inf)
    assert model.batch_generate([MINUS], max_tokens=1)[0].error is None


def test_labels_that_are_broken_behind_the_prompt_are_an_error(model: MlxModel) -> None:
    """The prompt is sound, and what follows the first token of a label is not."""
    labels = ["a", f"{PLUS}a", "b"]
    rows = model.classify(["ab no", "a"], labels=labels, label_prefix="")
    assert [broken(row.error) for row in rows] == [True, True]
    [sound] = model.classify(["a"], labels=labels[::2], label_prefix="")
    assert sound.error is None


def test_labels_only_judges_by_the_labels_that_may_be_best(model: MlxModel) -> None:
    """One that is likelier than the first token of a broken one is the best, whatever follows."""
    labels, prompts = ["a", f"{PLUS}a", "b"], ["ab no", "a", TO_PLUS]
    asked: dict[str, Any] = {"label_prefix": "", "labels_only": True}
    searches = model._loaded.fast.label_search
    firsts = model.classify(prompts, labels=["a", PLUS, "b"], label_prefix="")
    together = model.classify(prompts, labels=labels, **asked)
    for prompt, first, row in zip(prompts, firsts, together, strict=True):
        [alone] = model.classify([prompt], labels=labels, **asked)
        wrong = first.label == PLUS or not searches  # without the search all labels are read
        assert [broken(row.error), broken(alone.error)] == [wrong, wrong]
        assert [row.label, alone.label] == [None if wrong else first.label] * 2
    assert {first.label == PLUS for first in firsts} == {True, False}
    [only_way] = model.classify(["ab no"], labels=[f"{PLUS}a", f"{PLUS}b"], **asked)
    assert broken(only_way.error)


def test_labels_only_judges_by_the_logits_of_labels(directory: Path) -> None:
    """The head runs for their tokens alone; without that way, all logits count."""
    for without, wrong in ((["label_rows"], True), ([], False)):
        config = core.LoadConfig(options={"without": without})
        with Cpu().load_model(directory, config) as model:
            [row] = model.classify([PLUS], labels=LABELS[:2], labels_only=True)
            assert broken(row.error) == wrong
            [row] = model.classify([PLUS], labels=[TARGET, "a"], labels_only=True, label_prefix="")
            assert broken(row.error)


def test_a_logit_beyond_float16_is_an_error(checkpoint: Checkpoint) -> None:
    """The case of GPUs, whose last product overflows: weights are finite, and so are states."""
    directory = changed(
        checkpoint("llama"), lambda weights: mark(weights, "lm_head.weight", huge=6e4, nan=False)
    )
    with Cpu().load_model(directory, core.LoadConfig(options={"dtype": "float16"})) as model:
        rows = model.classify([PLUS, "ab", MINUS], labels=LABELS)
        assert [broken(row.error) for row in rows] == [True, False, False]
        assert [row.error for row in model.hidden_states([PLUS, "ab"])] == [None, None]
    with Cpu().load_model(directory, core.LoadConfig(options={"dtype": "float32"})) as model:
        assert [row.error for row in model.classify([PLUS, "ab"], labels=LABELS)] == [None, None]


def test_an_embedding_that_is_the_head_as_well(checkpoint: Checkpoint) -> None:
    name = "model.embed_tokens.weight"
    directory = changed(checkpoint("gemma3"), lambda weights: mark(weights, name, nan=False))
    with Cpu().load_model(directory, core.LoadConfig()) as model:
        rows = model.classify([PLUS, "ab", MINUS], labels=LABELS)
        assert [broken(row.error) for row in rows] == [True, False, False]
        answers = model.batch_generate([PLUS, "ab", TO_PLUS], max_tokens=4)
        assert [broken(row.error) for row in answers] == [True, False, True]
        assert [item.id for item in answers[2].tokens] == [token(PLUS)]


# ------------------------------------------------------------------------------- generate

GREEDY: dict[str, Any] = {"max_tokens": 6}
DRAWN: list[dict[str, Any]] = [
    GREEDY,
    {**GREEDY, "return_logprobs": True},
    {**GREEDY, "temperature": 1e-3, "seed": 3},
    {**GREEDY, "temperature": 1e-3, "seed": 3, "top_p": 0.9, "min_p": 0.1, "top_k": 4},
    {**GREEDY, "temperature": 1e-3, "seed": 3, "typical_p": 0.9, "repeat_penalty": 1.1},
]
ENDS = {PLUS: [], NAN: [], TO_PLUS: [token(PLUS)], TO_NAN: [token(NAN)]}


def ids(result: BatchResult) -> list[int]:
    return [item.id for item in result.tokens]


@pytest.mark.parametrize("options", DRAWN, ids=str)
def test_batches_have_the_error_in_the_row(model: MlxModel, options: dict[str, Any]) -> None:
    prompts = [text for pair in zip(SOUND, ENDS, strict=True) for text in pair]
    alone = [model.batch_generate([text], **options)[0] for text in prompts]
    results = model.batch_generate(prompts, **options)  # more rows than slots: some take others'
    for prompt, result, wanted in zip(prompts, results, alone, strict=True):
        assert ids(result) == ids(wanted)
        if prompt in ENDS:
            assert broken(result.error)
            assert (ids(result), result.finish_reason) == (ENDS[prompt], "error")
        else:
            assert (result.error, result.finish_reason) == (None, "length")

    streamed: list[tuple[int, core.Token]] = []
    with pytest.raises(core.InvalidModelError):
        streamed.extend(model.batch_stream(prompts, **options))
    for row, wanted in enumerate(alone):
        assert [item.id for place, item in streamed if place == row] == ids(wanted)


@pytest.mark.parametrize("prompt", ENDS)
@pytest.mark.parametrize("operation", ["generate", "submit", "chat", "stream_tokens"])
def test_streams_raise_at_the_token(model: MlxModel, prompt: str, operation: str) -> None:
    config = core.GenerateConfig(**GREEDY)
    if operation == "submit":
        stream = model.submit(prompt, config)
    elif operation == "stream_tokens":
        stream = model.stream_tokens([token(prompt)], config)
    elif operation == "chat":
        stream = model.chat([core.Message("user", prompt)], config)
    else:
        stream = model.generate(prompt, config)
    found: list[int] = []
    with pytest.raises(core.InvalidModelError, match="NaN or infinite"):
        found.extend(item.id for item in stream)
    assert (found, stream.finish_reason) == (ENDS[prompt], "error")
    assert model.batch_generate(["ab"], max_tokens=2)[0].error is None


def test_samples_of_token_prompts_share_the_error(model: MlxModel) -> None:
    prompts = [[token(TO_PLUS)], model.encode("ab no")]
    found = model.generate_tokens(prompts, num_samples=2, temperature=1e-3, seed=1, **GREEDY)
    assert [broken(row.error) for row in found] == [True, True, False, False]


@pytest.mark.parametrize("overlap", [False, True], ids=["cpu", "as on a GPU"])
def test_the_row_that_takes_a_broken_ones_slot_is_sound(directory: Path, overlap: bool) -> None:
    """The NaN keys of a row stay in its columns, where no mask hides them."""
    config = core.LoadConfig(parallel_slots=2, options={"without": ["prefix_cache"]})
    with Cpu().load_model(directory, config) as model:
        model._engine._batch._overlap = overlap
        wanted = ids(model.batch_generate(["ab no"], max_tokens=6)[0])
        long = "ab " * 20 + "ab"  # goes on all the while
        for stops in ((), (token(NAN),)):  # one that has ended is fed all the same
            stream = model.submit(long, core.GenerateConfig(max_tokens=40))
            first = model.batch_generate([TO_NAN], max_tokens=6, stop_tokens=stops)[0]
            assert broken(first.error) == (not stops)
            later = model.batch_generate(["ab no"] * 2, max_tokens=6)
            assert [ids(row) for row in later] == [wanted] * 2
            assert len(list(stream)) == 40


# ------------------------------------------------------------------------------- the others


def test_scores(model: MlxModel) -> None:
    heads = ["ab no", PLUS, "a", NAN, "a", MINUS]
    tails = [" ab", "a", f"{PLUS}ab", "a", f" no{NAN}", "ab"]
    wrong = [False, True, True, True, False, False]  # nothing is read behind the last token
    alone = [model.score([head], [tail])[0] for head, tail in zip(heads, tails, strict=True)]
    pairs = [(model.encode(h), model.encode(h + t)) for h, t in zip(heads, tails, strict=True)]
    given = model.score_tokens([h for h, _ in pairs], [all_[len(h) :] for h, all_ in pairs])
    for scores in (model.score(heads, tails), alone, given):
        assert [broken(score.error) for score in scores] == wrong
        for score, one, bad in zip(scores, alone, wrong, strict=True):
            if not bad:
                assert score.token_logprobs == pytest.approx(one.token_logprobs, abs=TOLERANCE)
                assert np.isfinite(score.logprob)


def test_hidden_states_and_attention_keys(model: MlxModel) -> None:
    rows = model.hidden_states(["ab", f"a{NAN}", PLUS], layers=(0, -1))
    assert [broken(row.error, "hidden states") for row in rows] == [False, True, False]
    assert np.isfinite(rows[2].states or [np.nan]).all()
    with pytest.raises(core.InvalidModelError, match="attention keys"):
        model.inspect_attention(f"a{NAN}b")
    assert model.inspect_attention(PLUS).seq_len == 1


def test_training_stops_at_an_infinite_loss(directory: Path) -> None:
    with Cpu().load_model(directory, core.LoadConfig()) as model:
        example = core.TrainingExample(prompt=PLUS, completion="a")
        config = core.TrainConfig(iterations=2, rank=2, batch_size=1)
        with pytest.raises(core.TrainingError, match=r"At step 1 the loss is (nan|inf)"):
            list(model.train([example], config))
        assert model.classify(["ab"])[0].error is None


def test_training_stops_at_a_validation_loss_that_is_nan(checkpoint: Checkpoint) -> None:
    directory = changed(
        checkpoint("llama"), lambda weights: mark(weights, "lm_head.weight", huge=1.0)
    )
    with Cpu().load_model(directory, core.LoadConfig()) as model:
        before = model.classify(["ab"], return_logits=True)[0].logits
        learned = core.TrainingExample(prompt="a", completion=" no")
        validation = (core.TrainingExample(prompt=NAN, completion="a"),)
        config = core.TrainConfig(
            iterations=3, rank=2, batch_size=1, validation=validation, validate_every=2
        )
        steps: list[core.TrainStep] = []
        message = r"At step 2 the validation loss is nan: .* adapter of step 1,"
        with pytest.raises(core.TrainingError, match=message) as failed:
            steps.extend(model.train([learned], config))
        assert failed.value.step == 2
        [result] = model.classify(["ab"], return_logits=True)
        assert result.error is None
        assert before is not None
        assert not np.array_equal(before, result.logits or [])  # the adapter of step 1 is there


def test_padding_with_a_broken_token_breaks_no_neighbour(checkpoint: Checkpoint) -> None:
    """Only prompts that hold a token may be hurt by its weights, however they are batched."""

    def change(weights: Arrays) -> None:
        weights["model.embed_tokens.weight"][0] = np.nan  # no prompt holds it

    directory = changed(checkpoint("llama"), change)
    with Cpu().load_model(directory, core.LoadConfig(options={"prefill_chunk": 8})) as model:
        assert [row.error for row in model.classify(SOUND, labels=LABELS)] == [None] * len(SOUND)
        results = model.batch_generate(SOUND, max_tokens=3)
        assert [row.error for row in results] == [None] * len(SOUND)
        alone = [model.batch_generate([text], max_tokens=3)[0] for text in SOUND]
        assert list(map(ids, results)) == list(map(ids, alone))


# ------------------------------------------------------------------------------- the reduction


@pytest.mark.parametrize("ops", [Ops(), CpuOps()], ids=["mlx", "numpy"])
@pytest.mark.parametrize("size", [1, 7, 64, 1001, 70_000])
def test_broken_rows_are_found_wherever_the_value_is(ops: Ops, size: int) -> None:
    dice = np.random.default_rng(size)
    for place in {0, size // 2, size - 1}:
        rows = dice.normal(size=(5, size)).astype(np.float32)
        rows[0, place], rows[1, place], rows[2], rows[3, place] = np.nan, np.inf, -np.inf, -np.inf
        wanted = [True, True, True, size == 1, False]
        assert bools_of(ops.broken(mx.array(rows))) == wanted
        totals = np.array(ops.log_total(mx.array(rows)))
        assert np.isnan(totals).tolist() == wanted
        assert np.isfinite(totals[~np.array(wanted)]).all()


def bools_of(values: mx.array) -> Sequence[bool]:
    return np.array(values).tolist()  # type: ignore[no-any-return]
