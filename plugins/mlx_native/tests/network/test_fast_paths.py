"""Every fast way of running prompts against the plain masked forward pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import core
from core.kit.labels import softmax
from core_mlx_native.backend import Cpu
from core_mlx_native.chosen import FastPaths
from core_mlx_native.classify import microbatch
from core_mlx_native.cpu import ops as cpu_ops
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.loaded import load_decoder
from core_mlx_native.model import MlxModel
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.prefill import NO_PREFIX, prefill, read, run_prefix

ORACLE = Path(__file__).parents[1] / "oracle" / "data"
CASES = sorted(ORACLE.glob("*/*/config.json"))
PATHS = [field.name for field in fields(FastPaths)]
KEEPING = ("prefix", "prefix_cache")  # without which a call leaves nothing for the next one
WINDOW = 8  # of the sliding layers among the cases
TOLERANCE = 1e-4
VISIBLE = 1e-2
VOCABULARY = 64


@pytest.fixture(autouse=True)
def numpy_for_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_ops, "_WORTH_NUMPY", 1)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case.parts[-3]}-{case.parts[-2]}")
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    case: Path = request.param
    directory = tmp_path_factory.mktemp("model")
    for file in (case.parents[1] / "weights").iterdir():
        (directory / file.name).symlink_to(file)
    (directory / "config.json").write_text(case.read_text())
    return load_decoder(directory, ops=CpuOps(with_numpy=True))


def sharing(prefix: int) -> list[list[int]]:
    """Ragged prompts that begin with the same tokens."""
    dice = np.random.default_rng(prefix)
    head = dice.integers(3, VOCABULARY, prefix).tolist()
    lengths = (1, 2, WINDOW - 1, WINDOW + 1, 2 * WINDOW + 3)
    return [head + dice.integers(3, VOCABULARY, length).tolist() for length in lengths]


def ends(prompts: list[list[int]]) -> list[int]:
    return [len(prompt) - 1 for prompt in prompts]


@contextmanager
def without_numpy(decoder: Decoder) -> Iterator[None]:
    assert isinstance(decoder.ops, CpuOps)
    decoder.ops.with_numpy = False
    yield
    decoder.ops.with_numpy = True


def plain(decoder: Decoder, prompts: list[list[int]]) -> mx.array:
    with without_numpy(decoder):
        logits = decoder.logits(prefill(decoder, prompts).hidden_at(ends(prompts)))
        mx.eval(logits)
    return logits


def fast(
    decoder: Decoder,
    prompts: list[list[int]],
    shared: int,
    paths: FastPaths,
    skip: int = 0,
    step: int = 1,
    batch_size: int = 0,
) -> mx.array:
    """Logits by the fast way; ``skip`` tokens of the prefix are left out, which is wrong."""
    prefix = NO_PREFIX
    if shared:
        prefix = run_prefix(decoder, prompts[0][skip:shared], paths)
    positions = [(end - skip, end - skip) for end in ends(prompts)]
    rows = [prompt[skip:] for prompt in prompts]
    batch = read(decoder, rows, positions, prefix, paths, step, batch_size=batch_size)
    assert {len(array) for array in (batch.hidden, *batch.cache[0])} == {len(prompts)}
    return decoder.logits(batch.hidden_at([end - skip for end in ends(prompts)]))


def distance(left: mx.array, right: mx.array) -> float:
    return float(mx.abs(left - right).max())


@pytest.mark.parametrize("shared", [0, WINDOW - 2, WINDOW + 5])
def test_logits_are_those_of_the_plain_masked_pass(decoder: Decoder, shared: int) -> None:
    prompts = sharing(shared)
    wanted = plain(decoder, prompts)
    assert distance(fast(decoder, prompts, shared, FastPaths()), wanted) < TOLERANCE
    paths = FastPaths(last_layer=False)
    assert distance(fast(decoder, prompts, shared, paths), wanted) < TOLERANCE
    rounded = fast(decoder, prompts, shared, FastPaths(), step=16, batch_size=8)
    assert distance(rounded, wanted) < TOLERANCE
    rounded = fast(decoder, prompts, shared, paths, step=4, batch_size=8)
    assert distance(rounded, wanted) < TOLERANCE
    with without_numpy(decoder):
        assert distance(fast(decoder, prompts, shared, FastPaths()), wanted) < TOLERANCE


def test_a_prefix_that_is_not_theirs_would_show(decoder: Decoder) -> None:
    prompts = sharing(4)  # within every window
    found = fast(decoder, prompts, 4, FastPaths(), skip=1)
    assert distance(found, plain(decoder, prompts)) > VISIBLE


def test_positions_within_a_prompt_are_read_too(decoder: Decoder) -> None:
    prompts = sharing(5)
    positions = [(len(p) - 1, max(5, len(p) - 4)) for p in prompts]
    prefix = run_prefix(decoder, prompts[0][:5], FastPaths())
    batch = read(decoder, prompts, positions, prefix, FastPaths())
    whole = prefill(decoder, prompts)
    for column in (0, 1):
        at = [row[column] for row in positions]
        found, wanted = batch.hidden_at(at), whole.hidden_at(at)
        assert distance(decoder.logits(found), decoder.logits(wanted)) < TOLERANCE
    picked = batch.select([1, 3])
    at = [positions[1][1], positions[3][1]]
    assert mx.array_equal(picked.hidden_at(at), batch.hidden_at([r[1] for r in positions])[[1, 3]])


def test_the_head_of_some_rows_gives_their_logits(decoder: Decoder) -> None:
    hidden = prefill(decoder, sharing(0)).hidden[:, 0]
    tokens = [7, 3, 7, VOCABULARY - 1]
    found = decoder.logits_of(hidden, mx.array(tokens))
    assert distance(found, decoder.logits(hidden)[:, mx.array(tokens)]) < TOLERANCE


# ---------------------------------------------------------------------------- the real models


LABELS = ("finance", "sports", "science", "technology")
INSTRUCTION = "Name the field of this news in one word: finance, sports, science or technology.\n"


REAL = [
    pytest.param("smollm2_dir", marks=pytest.mark.slow),
    pytest.param("gemma3_dir", marks=pytest.mark.long),  # the cases above have its family's windows
]


@pytest.fixture(scope="module", params=["small_smollm2", *REAL])
def directory(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def headlines(count: int) -> list[str]:
    """Two groups with an instruction of their own, and some prompts without any."""
    file = Path(__file__).parents[4] / "examples" / "headlines.jsonl"
    texts = [json.loads(line)["text"] for line in file.read_text().splitlines()][:count]
    heads = (INSTRUCTION, "News: ", "")
    return [f"{heads[i % 3]}{text} This news is about" for i, text in enumerate(texts)]


def loaded(directory: Path, *without: str) -> MlxModel:
    options = {"without": without, "token_budget": 256}
    return Cpu().load_model(directory, core.LoadConfig(options=options))


def test_each_path_switched_off_gives_the_same_labels(directory: Path) -> None:
    prompts = headlines(9) + headlines(3)
    with loaded(directory, *PATHS) as model:
        repeated = sum(len(model.encode(prompt)) for prompt in prompts[9:])
        wanted = model.classify(prompts, labels=(*LABELS, "science fiction"))
        assert model.metrics.cached_prompt_tokens == 0
    for path in [None, *PATHS]:
        with loaded(directory, *filter(None, [path])) as model:
            results = model.classify(prompts, labels=(*LABELS, "science fiction"))
            cached = model.metrics.cached_prompt_tokens
            assert cached == repeated if path == "prefix" else cached > 0
            assert path in ("equal_rows", "prefix") or cached > repeated
            only = model.classify(prompts, labels=LABELS, labels_only=True)
            best = model.classify(prompts, labels=(*LABELS, "science fiction"), labels_only=True)
            [alone] = model.classify(prompts[:1], labels=(*LABELS, "science fiction"))
            assert (model.metrics.cached_prompt_tokens > 0) == (path not in KEEPING)
        assert alone.logprobs == pytest.approx(wanted[0].logprobs, abs=TOLERANCE)
        assert [result.label for result in best] == [result.label for result in wanted]
        assert {(result.probabilities, result.margin) for result in best} == {(None, None)}
        for found, bare, plain_result in zip(results, only, wanted, strict=True):
            assert found.token == plain_result.token
            assert found.label == plain_result.label
            assert found.logprobs == pytest.approx(plain_result.logprobs, abs=TOLERANCE)
            assert found.label_mass == pytest.approx(plain_result.label_mass, abs=TOLERANCE)
            logprobs = plain_result.logprobs or {}
            of_words = dict(
                zip(LABELS, softmax([logprobs[label] for label in LABELS]), strict=True)
            )
            assert bare.probabilities == pytest.approx(of_words, abs=TOLERANCE)
            assert bare.label == max(of_words, key=of_words.__getitem__)


# -------------------------------------------------------------------------------- options


def test_labels_only_leaves_out_what_takes_the_whole_vocabulary(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with loaded(checkpoint()) as model:
        whole = model.classify(["ab c"], labels=["a", "b"])[0]
        asked = model.classify(["ab c"], labels=["a", "b"], labels_only=True, return_logits=True)[0]
        unlabelled = model.classify(["ab c"], labels_only=True)[0]
        monkeypatch.setattr(Decoder, "logits", None)  # the head over the whole vocabulary
        result = model.classify(["ab c"], labels=["a", "b"], labels_only=True)[0]
    assert (result.token, result.logprobs, result.label_mass) == (None, None, None)
    assert result.probabilities == pytest.approx(whole.probabilities, abs=TOLERANCE)
    assert (result.label, unlabelled.token) == (whole.label, whole.token)
    assert asked.logits is not None


def test_the_head_runs_once_for_a_prompt_and_its_labels(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the whole vocabulary it can take longer than a layer."""
    rows: list[int] = []
    real = Decoder.logits

    def watched(self: Decoder, hidden: mx.array) -> mx.array:
        rows.append(hidden.size // hidden.shape[-1])
        return real(self, hidden)

    prompts = ["ab c", "b", "abc abc"]
    monkeypatch.setattr(Decoder, "logits", watched)
    with loaded(checkpoint()) as model:
        results = model.classify(prompts, labels=["a", "b"])
        assert sum(rows) == len(prompts)
        monkeypatch.setattr(microbatch, "_read_at_ends", lambda rows: False)
        wanted = model.classify(prompts, labels=["a", "b"])
    assert sum(rows) == 3 * len(prompts)
    for found, other in zip(results, wanted, strict=True):
        assert found.token == other.token
        assert found.logprobs == pytest.approx(other.logprobs, abs=TOLERANCE)


@pytest.mark.parametrize(("step", "least", "most"), [(1, 10, 30), (16, 2, 3)])
def test_lengths_of_a_step_are_few_shapes(
    checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    least: int,
    most: int,
) -> None:
    """Prompts of 1 to 30 tokens: a shape for nearly each of them, or two and the last batch."""
    shapes: set[tuple[int, ...]] = set()
    real = Decoder.__call__

    def watched(self: Decoder, tokens: mx.array, *rest: Any) -> Any:
        shapes.add(tokens.shape)
        return real(self, tokens, *rest)

    monkeypatch.setattr(Decoder, "__call__", watched)
    options = {"length_step": step, "token_budget": 64, "without": ["prefix"]}
    prompts = ["a" * (1 + i % 30) for i in range(120)]
    with Cpu().load_model(checkpoint(), core.LoadConfig(options=options)) as model:
        results = model.classify(prompts, labels=["a", "b"], labels_only=True)
    assert all(result.error is None for result in results)
    assert {length % step for _, length in shapes} == {0}
    assert all(rows * length <= 64 for rows, length in shapes)
    assert least <= len(shapes) <= most


@pytest.mark.parametrize("value", ["prefixes", 3, [1]])
def test_an_unknown_path_is_refused_by_name(checkpoint: Callable[..., Path], value: Any) -> None:
    with pytest.raises(core.OptionError, match="without"):
        Cpu().load_model(checkpoint(), core.LoadConfig(options={"without": value}))


# -------------------------------------------------------------------------- streams of prompts


@pytest.fixture
def model(checkpoint: Callable[..., Path]) -> Iterator[MlxModel]:
    with loaded(checkpoint()) as model:
        yield model


def test_a_stream_gives_what_the_list_gives(model: MlxModel) -> None:
    prompts = ["a" * (1 + i % 7) + "bc"[i % 2] for i in range(700)]
    prompts[5], prompts[300] = "", "a" * 5000
    found = list(model.classify_iter(iter(prompts), labels=["a", "b"]))
    wanted = model.classify(prompts, labels=["a", "b"])
    assert isinstance(found[5].error, core.EmptyPromptError)
    assert isinstance(found[300].error, core.PromptTooLongError)
    for one, other in zip(found, wanted, strict=True):
        assert (one.token, one.label) == (other.token, other.label)
        assert one.probabilities == pytest.approx(other.probabilities, abs=TOLERANCE)
    assert model.metrics.generated_tokens == len(prompts) - 2


def test_a_stream_takes_little_ahead_of_what_it_answers(model: MlxModel) -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "ab"

    results: Any = model.classify_iter(endless())
    next(results)
    assert taken <= 256
    for _ in range(3000):
        next(results)
    assert taken <= 3000 + 3 * 1024
    results.close()
    assert model.metrics.generated_tokens > 0


def test_a_stream_checks_its_options_at_the_call_and_its_prompts_as_they_come(
    model: MlxModel,
) -> None:
    with pytest.raises(TypeError, match="max_tokens"):
        model.classify_iter(["a"], max_tokens=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="wrap a single one"):
        model.classify_iter("a")
    assert list(model.classify_iter([])) == []
    odd: Any = ["ab"] * 70 + [3]
    results = model.classify_iter(odd)
    with pytest.raises(TypeError, match="prompt 70 is a int"):
        list(results)
    model.close()
    with pytest.raises(core.ModelClosedError):
        model.classify_iter(["a"])
