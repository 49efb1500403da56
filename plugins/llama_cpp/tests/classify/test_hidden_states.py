"""Hidden states: what the head makes logits of, whatever else is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest

import core
from core_llama_cpp.model import LlamaModel
from core_llama_cpp.tolerance import EXACT

States = npt.NDArray[np.float32]

PROMPTS = ["ab a", "b", "ab ab ab b a ab", "a!b?c", "ab a" * 9]


def states(model: LlamaModel, prompts: Sequence[str]) -> States:
    """[prompts, hidden size]"""
    results = model.hidden_states(prompts)
    assert [result.error for result in results] == [None] * len(prompts)
    assert {result.layers for result in results} == {(model.info.num_layers,)}
    return np.array([np.array(result.states, np.float32) for result in results])


def distance(left: States, right: States) -> float:
    """The greatest of all states' distances, by their lengths."""
    assert left.shape == right.shape
    lengths = np.linalg.norm(right, axis=-1)
    return float((np.linalg.norm(left - right, axis=-1) / lengths).max())


def test_the_head_makes_the_logits_of_a_state(
    tiny_model: LlamaModel, tiny_gguf: Callable[..., Path]
) -> None:
    tensors = {each.name: each.data for each in gguf.GGUFReader(tiny_gguf("same")).tensors}
    results = tiny_model.classify(PROMPTS, return_logits=True)
    logits = np.array([np.array(result.logits, np.float32) for result in results])
    found = states(tiny_model, PROMPTS)
    assert found.shape == (len(PROMPTS), tiny_model.info.hidden_size)
    assert np.abs(found @ tensors["output.weight"].T - logits).max() < 1e-3


def test_neighbours_and_what_was_asked_before_change_no_state(
    real_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_model, "equal_rows", False)
    prompts = ["The capital of France is", "Once", "The capital of France is not", "A\n\nB"]
    alone = np.concatenate([states(real_model, [prompt]) for prompt in prompts])
    assert distance(states(real_model, prompts * 3), np.tile(alone, (3, 1))) < EXACT
    assert distance(states(real_model, prompts[::-1]), alone[::-1]) < EXACT
    apart = [distance(alone[[a]], alone[[b]]) for a in range(4) for b in range(a)]
    assert min(apart) > 0.1


def test_more_prompts_than_sequences_and_than_rows_of_outputs(tiny_model: LlamaModel) -> None:
    settings = tiny_model._loaded.session.settings
    many = [f"ab {'a b' * (number % 5)} {number}" for number in range(3 * settings.n_seq_max)]
    found = states(tiny_model, many)
    for place in (0, 64, len(many) - 1):
        assert distance(found[[place]], states(tiny_model, [many[place]])) < EXACT


def test_logits_are_read_as_before(tiny_model: LlamaModel) -> None:
    """A pass that shows hidden states leaves nothing switched on behind it."""
    before = tiny_model.score(["a" * 300], [" b" * 100])[0]
    states(tiny_model, PROMPTS)
    assert tiny_model.score(["a" * 300], [" b" * 100])[0] == before
    assert "".join(token.text for token in tiny_model.generate("ab", max_tokens=4))


def test_equal_prompts_are_computed_once(tiny_model: LlamaModel) -> None:
    first, second = tiny_model.hidden_states(["ab a", "ab a"])
    assert tiny_model.metrics.prompt_tokens == 2 * len(tiny_model.encode("ab a"))
    assert tiny_model.metrics.cached_prompt_tokens == len(tiny_model.encode("ab a"))
    assert first.states == second.states
    assert first.states is not second.states


def test_other_layers_are_refused_by_name(tiny_model: LlamaModel) -> None:
    last = tiny_model.info.num_layers
    assert tiny_model.hidden_states(["ab"], layers=[last])[0].layers == (last,)
    for other in ((0,), (1, -1)):
        with pytest.raises(
            core.UnsupportedOptionError, match="only returns the last layer"
        ) as caught:
            tiny_model.hidden_states(["ab"], layers=other)
        assert (caught.value.option, caught.value.backend) == ("layers", "llama_cpp")
    for none in ((), (last + 1,), (-1, last)):
        with pytest.raises(core.InvalidOptionError, match="layers"):
            tiny_model.hidden_states(["ab"], layers=none)


def test_each_prompts_error_is_its_own(tiny_model: LlamaModel) -> None:
    found = tiny_model.hidden_states(["", "ab", "!" * 600, "ab"])
    assert isinstance(found[0].error, core.EmptyPromptError)
    assert isinstance(found[2].error, core.PromptTooLongError)
    assert (found[1].error, found[3].error) == (None, None)
    assert tiny_model.hidden_states([]) == []

    # A prompt that fills the context has room.
    limit = tiny_model.info.context_length
    assert tiny_model.hidden_states(["!" * limit])[0].error is None


def test_stopping_is_the_error_of_each_row(tiny_model: LlamaModel) -> None:
    class Set:
        def is_set(self) -> bool:
            return True

    cancelled = tiny_model.hidden_states(PROMPTS, cancel=Set())
    assert {type(result.error) for result in cancelled} == {core.GenerationCancelled}
    late = tiny_model.hidden_states(PROMPTS, timeout=1e-9)
    assert {type(result.error) for result in late} == {core.GenerationTimeout}
    assert tiny_model.hidden_states(["ab"])[0].error is None
