"""What earlier calls leave for `classify` and `score`, against a model that keeps nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.classify import prefixes, scheduler
from core_mlx_native.model import MlxModel
from core_mlx_native.network import prefill
from core_mlx_native.network.prefix_store import PrefixStore

Checkpoint = Callable[..., Path]

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3")
WINDOW = 8
CONTEXT = 256
LABELS = ("d", "ef", "dg")
TOLERANCE = 1e-5
INSTRUCTION = "ghijkdefhijgkfedhijgkkjihgfedd"  # a token each


@pytest.fixture(autouse=True)
def any_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token is worth it: the tests are about what is right, not about what pays."""
    monkeypatch.setattr(prefixes, "_WORTH", 1)


@pytest.fixture
def directory(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Path:
    """Windows and a norm behind each part, unless the test asks for a family."""
    family = getattr(request, "param", "gemma3")
    return checkpoint(family, max_position_embeddings=CONTEXT)


def opened(directory: Path, kept: int | None = None, **options: Any) -> MlxModel:
    sizes = {} if kept is None else {"prefix_cache": kept}
    config = core.LoadConfig(options={**sizes, **options})
    return Cpu().load_model(directory, config)


@pytest.fixture
def model(directory: Path) -> Iterator[MlxModel]:
    with opened(directory) as model:
        yield model


@pytest.fixture
def cold(directory: Path) -> Iterator[MlxModel]:
    with opened(directory, kept=0) as model:
        yield model


def tail(dice: random.Random, least: int = 1, most: int = 2 * WINDOW) -> str:
    return "".join(dice.choices("defghijk", k=dice.randint(least, most)))


def same(found: Sequence[core.ClassifyResult], wanted: Sequence[core.ClassifyResult]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert (one.error, other.error) == (None, None)
        assert (one.token and one.token.id) == (other.token and other.token.id)
        assert one.label == other.label
        assert one.logprobs == pytest.approx(other.logprobs, abs=TOLERANCE)
        left, right = np.array(one.logits), np.array(other.logits)
        assert np.abs(left - right).max() < TOLERANCE


def asked(model: MlxModel, *prompts: str) -> list[core.ClassifyResult]:
    return model.classify(prompts, labels=LABELS, label_prefix="", return_logits=True)


# ------------------------------------------------------------------------- what one row computes


def test_one_text_a_call_runs_behind_the_instruction(model: MlxModel, cold: MlxModel) -> None:
    dice = random.Random(0)
    cached: list[int] = []
    for _ in range(5):
        text = INSTRUCTION + "defgh"[len(cached)] + tail(dice)
        same(asked(model, text), asked(cold, text))
        cached.append(model.metrics.cached_prompt_tokens)
        assert cold.metrics.cached_prompt_tokens == 0
    assert cached == [0, 0, 30, 30, 30]  # the second call tells what it has in common


def test_a_few_texts_a_call_use_the_prefix_of_the_call_before(
    model: MlxModel, cold: MlxModel
) -> None:
    dice = random.Random(1)
    cached = []
    for _ in range(3):
        texts = [INSTRUCTION + first + tail(dice) for first in "defg"]
        same(asked(model, *texts), asked(cold, *texts))
        cached.append(model.metrics.cached_prompt_tokens)
    assert cached == [3 * 30, 4 * 30, 4 * 30]


def test_rows_alone_run_behind_the_prefixes_of_several_callers(
    model: MlxModel, cold: MlxModel
) -> None:
    dice = random.Random(2)
    heads = ["d" + "efg" * 20, "e" + "hij" * 20, "f" + "kkd" * 20]
    for head in heads:
        for first in "gh":
            asked(model, head + first)
    texts = [head + "i" + tail(dice) for head in (*heads, "g")]
    same(asked(model, *texts), asked(cold, *texts))
    assert model.metrics.cached_prompt_tokens == 3 * 61


def test_a_text_that_is_kept_wholly_is_read_at_its_end(model: MlxModel, cold: MlxModel) -> None:
    for text in ("d", "e", "", "", "f"):
        same(asked(model, INSTRUCTION + text), asked(cold, INSTRUCTION + text))
    shorter = INSTRUCTION[:20]
    same(asked(model, shorter), asked(cold, shorter))
    assert model.metrics.cached_prompt_tokens == 19


def test_a_longer_instruction_is_computed_behind_the_shorter_one(
    model: MlxModel, cold: MlxModel
) -> None:
    longer = INSTRUCTION + "kkkkdefgkdkdkd"
    for head in (INSTRUCTION, longer):
        texts = [head + first + "de" for first in "defghijk"]
        same(asked(model, *texts), asked(cold, *texts))
    assert model.metrics.cached_prompt_tokens == 7 * len(longer) + len(INSTRUCTION)


# ------------------------------------------------------------------------- attacks


@pytest.mark.parametrize(
    ("directory", "kept"),
    [*((family, None) for family in FAMILIES), ("gemma3", 9_000)],
    indirect=["directory"],
)
def test_prompts_that_share_any_number_of_tokens(
    directory: Path, cold: MlxModel, kept: int | None
) -> None:
    """With room for all, and with room for a few, which drop one another."""
    dice = random.Random(3)
    seen = ["k" * 40]
    with opened(directory, kept) as model:
        for _ in range(16):
            texts = [
                dice.choice(seen)[: dice.randint(1, 3 * WINDOW)] + tail(dice, least=0)
                for _ in range(dice.choice([1, 1, 2, 3]))
            ]
            same(asked(model, *texts), asked(cold, *texts))
            seen += texts
            held = model._loaded.prefixes.used
            assert held <= (kept or held)
        assert held > 0


def test_scores_are_those_of_a_cold_model(model: MlxModel, cold: MlxModel) -> None:
    dice = random.Random(4)
    for _ in range(8):
        heads = [INSTRUCTION[: dice.randint(1, 30)] + tail(dice) for _ in range(dice.randint(1, 2))]
        tails = [tail(dice, most=5) for _ in heads]
        found, wanted = model.score(heads, tails), cold.score(heads, tails)
        for one, other in zip(found, wanted, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=10 * TOLERANCE)  # a sum
            assert (one.error, one.is_greedy) == (None, other.is_greedy)


def test_two_threads_and_two_models(directory: Path, checkpoint: Checkpoint) -> None:
    """Each model has its own weights, and a store of its own."""
    other = checkpoint("llama", name="other", max_position_embeddings=CONTEXT, rope_theta=100.0)
    failures: list[BaseException] = []

    def work(seed: int, models: Sequence[tuple[MlxModel, MlxModel]]) -> None:
        dice = random.Random(seed)
        try:
            for _ in range(6):
                model, cold = dice.choice(models)
                text = INSTRUCTION[: dice.randint(0, 30)] + tail(dice)
                same(asked(model, text), asked(cold, text))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    with (
        opened(directory) as a,
        opened(directory, 0) as b,
        opened(other) as c,
        opened(other, 0) as d,
    ):
        threads = [threading.Thread(target=work, args=(i, [(a, b), (c, d)])) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_rows_in_lanes_run_behind_what_is_kept(
    directory: Path, cold: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_WORTH", 1)
    dice = random.Random(5)
    with opened(directory) as model:
        for _ in range(4):
            texts = [INSTRUCTION + tail(dice) for _ in range(5)]
            same(asked(model, *texts), asked(cold, *texts))


# ------------------------------------------------------------------------- memory


@pytest.fixture
def llama(checkpoint: Checkpoint) -> Path:
    return checkpoint("llama", max_position_embeddings=CONTEXT)


def test_bytes_are_those_of_keys_and_values_alone(llama: Path) -> None:
    with opened(llama) as model:
        before = model.memory().active_bytes
        for first in "def":
            asked(model, INSTRUCTION + first + "d" * 60)
        held = model._loaded.prefixes.used
        assert held == 30 * 2 * 2 * 2 * 8 * 4  # tokens, layers, keys and values, heads, size, float
        assert 0 <= model.memory().active_bytes - before - held < 1000
        model._loaded.prefixes.clear()
        assert model.memory().active_bytes - before < 1000


def test_out_of_memory_what_is_kept_goes_first(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real: Callable[..., Any] = prefill.read

    with opened(llama) as model:

        def scarce(decoder: object, prompts: Sequence[object], *rest: Any, **more: Any) -> Any:
            sizes.append(len(prompts))
            if model._loaded.prefixes.used:
                raise RuntimeError("[malloc_or_wait] Unable to allocate 12 bytes.")
            return real(decoder, prompts, *rest, **more)

        for first in "def":
            asked(model, INSTRUCTION + first)
        assert model._loaded.prefixes.used
        monkeypatch.setattr(scheduler, "read", scarce)
        results = asked(model, "dd", "e", "kkd")
    assert [result.error for result in results] == [None] * 3
    assert sizes == [3, 3]  # whole again, and not halved


def test_a_prefix_that_finds_no_memory_is_computed_without_what_is_kept(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = prefill.run_prefix

    with opened(llama) as model:

        def scarce(*given: Any) -> Any:
            if model._loaded.prefixes.used:
                raise RuntimeError("[malloc_or_wait] Unable to allocate 12 bytes.")
            return real(*given)

        for first in "def":
            asked(model, INSTRUCTION + first)
        monkeypatch.setattr(prefixes, "run_prefix", scarce)
        results = asked(model, *["d" * 50 + first for first in "efgh"])
    assert [result.error for result in results] == [None] * 4


def test_one_text_that_finds_no_memory_for_its_prefix_runs_without(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(llama) as model, opened(llama, 0) as cold:
        for first in "def":
            asked(model, INSTRUCTION + first)

        def scarce(*_: Any) -> prefill.Prefix:
            raise RuntimeError("[malloc_or_wait] Unable to allocate 12 bytes.")

        monkeypatch.setattr(PrefixStore, "cut", scarce)
        same(asked(model, INSTRUCTION + "g"), asked(cold, INSTRUCTION + "g"))
        assert model._loaded.prefixes.used == 0
        assert model.metrics.cached_prompt_tokens == 0


def test_less_is_kept_where_memory_is_scarce(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(llama) as model:
        store: PrefixStore = model._loaded.prefixes
        for first in "def":
            asked(model, INSTRUCTION + first)
        held = store.used
        monkeypatch.setattr(store, "_free", lambda: 0)
        monkeypatch.setattr(store, "_looked", -1e9)
        for first in "def":
            asked(model, "d" * 20 + first)
        assert 0 < store.used <= held // 2 or store.used == 0


@pytest.mark.parametrize("options", [{"prefix_cache": 0}, {"without": "prefix_cache"}])
def test_off_is_off(llama: Path, options: dict[str, Any]) -> None:
    with opened(llama, **options) as model:
        for first in "defg":
            asked(model, INSTRUCTION + first)
            assert model.metrics.cached_prompt_tokens == 0
        assert model._loaded.prefixes.used == 0
        chosen = {choice.name: choice.value for choice in model.choices()}
        assert chosen["prefix_cache"] == "0"


def test_a_stream_of_one_row_at_a_time_is_as_good(llama: Path) -> None:
    with opened(llama) as model, opened(llama, 0) as cold:
        texts = [INSTRUCTION + first + "dk" for first in "defgh"]
        for text in texts:
            [found] = islice(model.classify_iter([text], return_logits=True), 1)
            [wanted] = cold.classify([text], return_logits=True)
            same([found], [wanted])
        assert model.metrics.cached_prompt_tokens == 30
