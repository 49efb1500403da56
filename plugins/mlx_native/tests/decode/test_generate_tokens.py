"""``generate_tokens``: prompts as token ids, ragged or padded, and several samples of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import core
from core.token_ids import token_prompts
from core.types import TokenSequence
from core_mlx_native.backend import Cpu
from core_mlx_native.decode.prefilling import Prefilling
from core_mlx_native.model import MlxModel

Checkpoint = Callable[..., Path]
RAGGED = [[5, 9, 40, 7], [66], [80, 81, 82, 83, 84, 85, 86], [66, 67]]
PADDED = [[0] * (7 - len(row)) + row for row in RAGGED]
MASK = [[0] * (7 - len(row)) + [1] * len(row) for row in RAGGED]
CONTEXT = 64
SAMPLED = core.GenerateConfig(max_tokens=12, temperature=1.0, seed=5)


@pytest.fixture(params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Iterator[MlxModel]:
    """A model that no token stops, with fewer slots than rows in some tests."""
    directory = checkpoint(request.param)
    (directory / "tokenizer_config.json").unlink()  # which names the EOS
    with Cpu().load_model(directory, core.LoadConfig(parallel_slots=4)) as loaded:
        yield loaded


def new(sequence: TokenSequence) -> list[int]:
    """What was generated."""
    return [id for id, mine in zip(sequence.ids, sequence.generated, strict=True) if mine]


# ---------------------------------------------------------------- what comes out


def test_one_prompt_is_continued_as_its_text_would_be(model: MlxModel) -> None:
    prompt = model.encode("ab ab no")
    for config in (core.GenerateConfig(max_tokens=12), SAMPLED):
        (found,) = model.generate_tokens(prompt, config)
        drawn = [token.id for token in model.generate("ab ab no", config)]
        assert found.ids == (*prompt, *drawn)
        assert found.generated == (False,) * len(prompt) + (True,) * len(drawn)
        assert (found.finish_reason, found.error, found.logprobs) == ("length", None, ())


def test_several_prompts_give_a_sequence_each_in_order(model: MlxModel) -> None:
    together = model.generate_tokens(RAGGED, SAMPLED)
    assert [list(found.ids[: len(row)]) for found, row in zip(together, RAGGED, strict=True)] == (
        RAGGED
    )
    for row, found in zip(RAGGED, together, strict=True):
        assert model.generate_tokens(row, SAMPLED) == [found]
        assert model.generate_tokens([row], SAMPLED) == [found]
        assert sum(found.generated) == 12
    assert model.generate_tokens([]) == []


def test_log_probabilities_come_when_asked_for(model: MlxModel) -> None:
    prompt = model.encode("ab ab no")
    (found,) = model.generate_tokens(prompt, SAMPLED, return_logprobs=True)
    tokens = list(model.generate("ab ab no", SAMPLED, return_logprobs=True))
    assert found.logprobs == pytest.approx([token.logprob for token in tokens], abs=1e-4)


def test_the_token_that_ends_it_is_left_out(model: MlxModel) -> None:
    (whole,) = model.generate_tokens(RAGGED[0], SAMPLED)
    stop = new(whole)[5]
    (found,) = model.generate_tokens(RAGGED[0], SAMPLED, stop_tokens=[stop])
    assert new(found) == new(whole)[: new(whole).index(stop)]
    assert found.finish_reason == "stop"
    assert stop not in new(found)


def test_metrics_add_up(model: MlxModel) -> None:
    found = model.generate_tokens(RAGGED, SAMPLED, num_samples=3)
    metrics = model.metrics
    assert metrics.prompt_tokens == sum(map(len, RAGGED))  # one prefill serves all samples
    assert metrics.generated_tokens == sum(sum(row.generated) for row in found) == 12 * 12
    assert metrics.prefill_seconds > 0.0
    assert metrics.prefill_seconds + metrics.decode_seconds <= metrics.total_seconds


# ---------------------------------------------------------------- padding and arrays


def test_left_padding_changes_nothing(model: MlxModel) -> None:
    expected = model.generate_tokens(RAGGED, SAMPLED)
    assert model.generate_tokens(PADDED, SAMPLED, attention_mask=MASK) == expected
    without = model.generate_tokens(PADDED, SAMPLED)
    assert [len(row.ids) for row in without] == [7 + 12] * 4  # padding that nobody told of
    other = [[99 if id == 0 else id for id in row] for row in PADDED]
    assert model.generate_tokens(other, SAMPLED, attention_mask=MASK) == expected


@pytest.mark.parametrize(
    "kind",
    [np.array, mx.array, lambda rows: [np.array(row) for row in rows]],
    ids=["numpy", "mlx", "list of numpy"],
)
def test_arrays_are_taken(model: MlxModel, kind: Callable[..., Any]) -> None:
    expected = model.generate_tokens(RAGGED, SAMPLED)
    assert model.generate_tokens(kind(PADDED), SAMPLED, attention_mask=kind(MASK)) == expected
    assert model.generate_tokens(kind([RAGGED[0]]), SAMPLED) == expected[:1]
    for found in model.generate_tokens(np.array(PADDED), SAMPLED, attention_mask=np.array(MASK)):
        assert all(type(id) is int for id in found.ids)


def test_one_prompt_may_be_an_array(model: MlxModel) -> None:
    expected = model.generate_tokens(RAGGED[0], SAMPLED)
    for array in (np.array(RAGGED[0]), mx.array(RAGGED[0]), tuple(RAGGED[0]), iter(RAGGED[0])):
        prompt: Any = array
        assert model.generate_tokens(prompt, SAMPLED) == expected


@pytest.mark.parametrize("kind", [list, np.array, mx.array], ids=["list", "numpy", "mlx"])
def test_a_mask_may_be_of_bools(kind: Callable[..., Any]) -> None:
    mask = kind([[False, False, True], [True, True, True]])
    assert token_prompts([[0, 0, 5], [6, 7, 8]], mask) == [[5], [6, 7, 8]]
    assert token_prompts([0, 0, 5], kind([False, False, True])) == [[5]]


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=5))
def test_what_was_padded_is_found_again(rows: list[list[int]]) -> None:
    width = max(map(len, rows))
    padded = [[0] * (width - len(row)) + row for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    assert token_prompts(padded, mask) == rows
    assert token_prompts(np.array(padded), np.array(mask)) == rows
    assert token_prompts(rows) == rows


@pytest.mark.parametrize(
    "mask",
    [
        [[1, 1, 0], [1, 1, 1]],  # padded on the right
        [[0, 1, 0], [1, 1, 1]],
        [[0, 2, 2], [1, 1, 1]],
        [[0, -1, 1], [1, 1, 1]],
        [[0, 1], [1, 1]],
        [[0, 1, 1]],
        [0, 1, 1],
        [],
    ],
    ids=str,
)
def test_a_wrong_mask_raises_at_the_call(model: MlxModel, mask: Any) -> None:
    with pytest.raises(core.InvalidOptionError, match="attention_mask"):
        model.generate_tokens([[0, 5, 6], [7, 8, 9]], attention_mask=mask)


@pytest.mark.parametrize("mask", ["011", 3, [[0, 1, 1], 1]])
def test_what_is_no_mask_at_all_is_a_type_error(model: MlxModel, mask: Any) -> None:
    with pytest.raises(TypeError, match="attention_mask"):
        model.generate_tokens([[0, 5, 6], [7, 8, 9]], attention_mask=mask)


# ---------------------------------------------------------------- wrong prompts


@pytest.mark.parametrize("prompts", ["ab", None, 5, [[5], 6], np.array(5)], ids=repr)
def test_what_is_no_list_of_ids_is_a_type_error(model: MlxModel, prompts: Any) -> None:
    with pytest.raises(TypeError, match="prompts"):
        model.generate_tokens(prompts)


@pytest.mark.parametrize(
    "prompts",
    [["ab"], [[5, "a"]], [5, -1], [[5], [-1]], [5.0], [True], [5, [6]], [[[5]]], np.array([0.5])],
    ids=repr,
)
def test_what_is_no_id_raises_at_the_call(model: MlxModel, prompts: Any) -> None:
    with pytest.raises(core.InvalidOptionError, match="prompts"):
        model.generate_tokens(prompts)


def test_what_is_wrong_with_one_prompt_is_its_rows_error(model: MlxModel) -> None:
    size = model.info.vocab_size
    prompts = [[5], [], [5, size], [5, size - 1], [5] * (CONTEXT + 1), [2**70]]
    found = model.generate_tokens(prompts, max_tokens=3)
    none, unknown = type(None), core.RequestError
    assert [type(row.error) for row in found] == [
        none,
        core.EmptyPromptError,
        unknown,
        none,
        core.PromptTooLongError,
        unknown,
    ]
    assert f"token id {size}" in str(found[2].error)
    for prompt, row in zip(prompts, found, strict=True):
        assert list(row.ids[: len(prompt)]) == prompt
        assert len(new(row)) == (0 if row.error else 3)
        assert row.finish_reason == ("error" if row.error else "length")


def test_only_padding_is_an_empty_prompt(model: MlxModel) -> None:
    mask = [[0, 0], [0, 1]]
    found = model.generate_tokens([[5, 5], [5, 5]], max_tokens=2, attention_mask=mask)
    assert isinstance(found[0].error, core.EmptyPromptError)
    assert len(new(found[1])) == 2


def test_options_are_those_of_generate(model: MlxModel) -> None:
    foreign: dict[str, Any] = {"labels": ["ab"]}
    with pytest.raises(TypeError, match="labels"):
        model.generate_tokens([5], **foreign)
    with pytest.raises(core.InvalidOptionError, match="max_tokens"):
        model.generate_tokens([5], max_tokens=0)
    for wrong in (0, -1, 1.5, True, None):
        samples: Any = wrong
        with pytest.raises(core.InvalidOptionError, match="num_samples"):
            model.generate_tokens([5], num_samples=samples)


# ---------------------------------------------------------------- samples


def test_samples_differ_and_the_first_is_that_of_the_seed(model: MlxModel) -> None:
    prompt = model.encode("ab ab no")
    found = model.generate_tokens(prompt, SAMPLED, num_samples=6)  # more than there are slots
    assert len({row.ids for row in found}) == 6
    assert new(found[0]) == [token.id for token in model.generate("ab ab no", SAMPLED)]
    assert model.generate_tokens(prompt, SAMPLED, num_samples=6) == found
    assert model.generate_tokens(prompt, SAMPLED, num_samples=2) == found[:2]
    other = model.generate_tokens(prompt, SAMPLED, num_samples=6, seed=6)
    assert not {row.ids for row in other} & {row.ids for row in found}


def test_samples_stand_side_by_side(model: MlxModel) -> None:
    found = model.generate_tokens(RAGGED, SAMPLED, num_samples=3)
    assert [list(row.ids[: sum(not new for new in row.generated)]) for row in found] == [
        prompt for prompt in RAGGED for _ in range(3)
    ]
    for index, prompt in enumerate(RAGGED):
        alone = model.generate_tokens(prompt, SAMPLED, num_samples=3)
        assert found[3 * index : 3 * index + 3] == alone


def test_without_a_seed_the_samples_differ_too(model: MlxModel) -> None:
    found = model.generate_tokens([5], max_tokens=50, temperature=2.0, num_samples=4)
    assert len({row.ids for row in found}) == 4


def test_greedy_samples_are_all_the_same(model: MlxModel) -> None:
    found = model.generate_tokens([5, 6], max_tokens=8, num_samples=3)
    assert found == [found[0]] * 3


def test_the_highest_seed_has_samples_too(model: MlxModel) -> None:
    found = model.generate_tokens([5, 6], SAMPLED, seed=2**64 - 1, num_samples=3)
    assert len({row.ids for row in found}) == 3


def test_one_prefill_serves_all_samples(model: MlxModel, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    real = Prefilling.step

    def step(self: Prefilling, tokens: int) -> None:
        rows.append(self.rows)
        real(self, tokens)

    monkeypatch.setattr(Prefilling, "step", step)
    model.generate_tokens([5, 6], SAMPLED, num_samples=4)
    assert rows == [1]


def test_a_prompt_that_cannot_run_fails_in_each_of_its_samples(model: MlxModel) -> None:
    found = model.generate_tokens([[5], [], [6]], SAMPLED, num_samples=2)
    failed = [isinstance(row.error, core.EmptyPromptError) for row in found]
    assert failed == [False, False, True, True, False, False]
