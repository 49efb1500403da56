"""Scores: every token's log-probability, from one pass, whatever else is scored."""

from __future__ import annotations

import numpy as np
import pytest

from core.errors import EmptyPromptError, PromptTooLongError
from core_llama_cpp.model import LlamaModel
from core_llama_cpp.tolerance import EXACT
from core_runtime.sequences.sampling import logprob


def test_a_score_is_what_classify_says_step_by_step(real_model: LlamaModel) -> None:
    prompt, words = "The capital of France is", [" Paris", ",", " a", " city"]
    score = real_model.score([prompt], ["".join(words)])[0]
    fronts = [prompt + "".join(words[:count]) for count in range(len(words))]
    results = real_model.classify(fronts, return_logits=True)
    expected = []
    for front, word, result in zip(fronts, words, results, strict=True):
        [token] = real_model.encode(front + word)[len(real_model.encode(front)) :]
        expected.append(logprob(np.array(result.logits, np.float32), token))
    slack = 2 * EXACT
    assert score.token_logprobs == pytest.approx(expected, abs=slack)
    assert score.logprob == pytest.approx(sum(score.token_logprobs))


def test_neighbours_change_no_score(
    real_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_model, "equal_rows", False)
    prompts = ["The capital of France is", "Once upon a time", "The capital of France is not"]
    tails = [" Paris", " there was a king", " London"]
    alone = [
        real_model.score([prompt], [tail])[0] for prompt, tail in zip(prompts, tails, strict=True)
    ]
    together = real_model.score(prompts * 3, tails * 3)
    for one, other in zip(alone * 3, together, strict=True):
        slack = 4 * EXACT
        assert other.token_logprobs == pytest.approx(one.token_logprobs, abs=slack)
    assert real_model.score([], []) == []


def test_more_rows_of_logits_than_one_batch_may_ask_for(tiny_model: LlamaModel) -> None:
    """A continuation of 300 tokens is read in parts: more outputs than allowed end the process."""
    assert tiny_model._loaded.session.settings.n_outputs_max < 300
    tail = "ab!" * 140
    score = tiny_model.score(["x"], [tail])[0]
    ids = tiny_model.encode("x" + tail)
    assert len(score.token_logprobs) == len(ids) - len(tiny_model.encode("x")) > 270
    for place in (0, 100, 279):
        front = ids[: len(tiny_model.encode("x")) + place]
        [row] = tiny_model.generate_tokens([front], max_tokens=1, return_logprobs=True)
        greedy, chance = row.ids[-1], row.logprobs[0]
        if greedy == ids[len(front)]:
            assert score.token_logprobs[place] == pytest.approx(chance, abs=1e-3)
        else:
            assert score.token_logprobs[place] < chance


def test_each_pairs_error_is_its_own(tiny_model: LlamaModel) -> None:
    scores = tiny_model.score(["", "ab", "!" * 600, "ab"], ["a", "", "b", " b"])
    assert isinstance(scores[0].error, EmptyPromptError)
    assert isinstance(scores[1].error, EmptyPromptError)
    assert isinstance(scores[2].error, PromptTooLongError)
    assert scores[3].error is None
    alone = tiny_model.score(["ab"], [" b"])[0]
    slack = 2 * EXACT
    assert scores[3].token_logprobs == pytest.approx(alone.token_logprobs, abs=slack)
    assert scores[3].is_greedy == alone.is_greedy
    with pytest.raises(TypeError, match="one continuation per prompt"):
        tiny_model.score(["a"], [])


def test_greedy_continuations_are_told(tiny_model: LlamaModel) -> None:
    tokens = list(tiny_model.generate("ab a", max_tokens=4))
    made = "".join(token.text for token in tokens)
    other = chr(ord(made[0]) + 1) + made[1:]
    right, wrong = tiny_model.score(["ab a"] * 2, [made, other])
    assert (right.is_greedy, wrong.is_greedy) == (True, False)
