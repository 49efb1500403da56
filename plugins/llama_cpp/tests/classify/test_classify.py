"""Reading distributions: against llama_cpp.Llama, with and without neighbours and beginnings."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import core
from core.errors import (
    EmptyPromptError,
    GenerationCancelled,
    InvalidModelError,
    LabelError,
    PromptTooLongError,
)
from core.types import ClassifyResult
from core_llama_cpp.model import LlamaModel
from core_llama_cpp.session import LlamaBatch, LlamaSession
from core_llama_cpp.tolerance import EXACT
from core_runtime.sequences import labels as label_reading
from core_runtime.sequences.prefixes import SharedPrefix
from core_runtime.sequences.session import DecodeError

Row = npt.NDArray[np.float32]

INSTRUCTION = "Decide what this sentence is about: finance, sports, science or technology.\n"
SENTENCES = [
    "Shares fell sharply after the bank raised its rates",
    "The striker scored twice in the final minutes of the match",
    "Astronomers found water in the atmosphere of a distant planet",
    "The new phone has a faster chip and a better camera",
    "Rain",
    "Bond yields rose",
]
PROMPTS = [f"{INSTRUCTION}Sentence: {sentence}\nTopic:" for sentence in SENTENCES]
LABELS = ("finance", "sports", "science", "technology")


def rows(results: list[ClassifyResult]) -> list[Row]:
    assert [result.error for result in results] == [None] * len(results)
    return [np.array(result.logits, np.float32) for result in results]


def logits(model: LlamaModel, prompts: list[str]) -> list[Row]:
    return rows(model.classify(prompts, return_logits=True))


def free_cells(model: LlamaModel) -> int:
    """When what runs has given back what it had."""
    return model._owner.run(lambda: model._passes._pool.cells)


def log_softmax(row: Row) -> npt.NDArray[np.float64]:
    wide = row.astype(np.float64)
    shifted: npt.NDArray[np.float64] = wide - wide.max()
    return shifted - math.log(np.exp(shifted).sum())


@pytest.mark.parametrize("name", ["smollm2", pytest.param("gemma3", marks=pytest.mark.slow)])
def test_log_probabilities_are_those_of_llama(name: str, request: pytest.FixtureRequest) -> None:
    model: LlamaModel = request.getfixturevalue(f"{name}_model")
    llama = request.getfixturevalue("plain_llama")(request.getfixturevalue(f"{name}_gguf"), model)
    for prompt, found in zip(PROMPTS, logits(model, PROMPTS), strict=True):
        ids = model.encode(prompt)
        llama.reset()
        llama.eval(ids)
        wanted = llama.scores[len(ids) - 1]
        assert np.abs(log_softmax(found) - log_softmax(wanted)).max() < 1e-3, prompt


@pytest.mark.parametrize(
    "real_model", ["smollm2", pytest.param("gemma3", marks=pytest.mark.slow)], indirect=True
)
def test_neighbours_and_beginnings_change_nothing(
    real_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_model, "equal_rows", False)
    alone = [logits(real_model, [prompt])[0] for prompt in PROMPTS]
    others = ["Hello", *PROMPTS[::-1], INSTRUCTION * 3, PROMPTS[0]]
    second = [f"{'Some more words that all of these begin with. ' * 2}{word}" for word in "abcdef"]
    cases = [PROMPTS, PROMPTS * 3, others, [*PROMPTS, *second]]
    for case in cases:
        found = logits(real_model, case)
        for prompt, row in zip(case, found, strict=True):
            if prompt in PROMPTS:
                apart = np.abs(row - alone[PROMPTS.index(prompt)]).max()
                assert apart <= EXACT


def test_what_is_shared_is_not_computed_again(smollm2_model: LlamaModel) -> None:
    smollm2_model._owner.run(smollm2_model._loaded.prefixes.clear)
    smollm2_model.classify(PROMPTS)
    metrics = smollm2_model.metrics
    shared = len(smollm2_model.encode(f"{INSTRUCTION}Sentence:"))
    assert metrics.prompt_tokens == sum(len(smollm2_model.encode(prompt)) for prompt in PROMPTS)
    assert metrics.cached_prompt_tokens == shared * (len(PROMPTS) - 1)
    other = [
        "Say in one word what the following text is mainly about, please. " + s for s in SENTENCES
    ]
    smollm2_model.classify([text for pair in zip(PROMPTS, other, strict=True) for text in pair])
    second = len(smollm2_model.encode("Say in one word what the following text is mainly about,"))
    assert smollm2_model.metrics.cached_prompt_tokens >= (shared + second) * (len(PROMPTS) - 1)


def test_equal_prompts_are_computed_once(
    smollm2_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the results that each has alone, for as many tokens as one of each takes."""
    smollm2_model._owner.run(smollm2_model._loaded.prefixes.clear)
    prompts = PROMPTS[:2] * 3
    results = smollm2_model.classify(prompts, labels=LABELS)
    cached = smollm2_model.metrics.cached_prompt_tokens
    assert results[2:] == results[:2] * 2
    tokens = sum(len(smollm2_model.encode(prompt)) for prompt in PROMPTS[:2])
    assert smollm2_model.metrics.prompt_tokens == 3 * tokens
    assert cached == 2 * tokens  # what the two share is too short for a pass of its own
    tails = [" finance", " sports"] * 3
    scores = smollm2_model.score(prompts, tails)
    assert scores[2:] == scores[:2] * 2

    monkeypatch.setattr(smollm2_model, "equal_rows", False)
    slack = 2 * EXACT
    for found, alone in zip(results, smollm2_model.classify(prompts, labels=LABELS), strict=True):
        assert found.label == alone.label
        assert found.logprobs == pytest.approx(alone.logprobs, abs=slack)
    for score, other in zip(scores, smollm2_model.score(prompts, tails), strict=True):
        assert score.token_logprobs == pytest.approx(other.token_logprobs, abs=slack)


def test_labels_are_those_of_the_sentences(smollm2_model: LlamaModel) -> None:
    results = smollm2_model.classify(PROMPTS[:4], labels=LABELS)
    assert results[0].label == "finance"
    for result in results:
        assert result.probabilities is not None
        assert math.isclose(sum(result.probabilities.values()), 1.0)


def test_labels_only_draws_no_token(
    smollm2_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = smollm2_model.classify(PROMPTS, labels=LABELS)
    asked = smollm2_model.classify(PROMPTS, labels=LABELS, labels_only=True, return_logits=True)
    monkeypatch.setattr(label_reading, "Sampler", None)
    found = smollm2_model.classify(PROMPTS, labels=LABELS, labels_only=True)
    for one, other in zip(found, whole, strict=True):
        assert (one.token, one.logprobs, one.label_mass) == (None, None, None)
        assert one.label == other.label
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-3)
    assert all(result.logits is not None for result in asked)


def test_a_stream_of_prompts_is_answered_in_blocks(tiny_model: LlamaModel) -> None:
    prompts = ["ab " * (1 + i % 5) for i in range(200)]
    prompts[7] = ""
    taken = 0

    def stream() -> Iterator[str]:
        nonlocal taken
        for prompt in prompts:
            taken += 1
            yield prompt

    results = tiny_model.classify_iter(stream(), labels=["a", "b"])
    first = next(results)
    assert taken < len(prompts)
    found = [first, *results]
    assert isinstance(found[7].error, EmptyPromptError)
    for one, other in zip(found, tiny_model.classify(prompts, labels=["a", "b"]), strict=True):
        assert one.label == other.label
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-3)
    assert tiny_model.metrics.generated_tokens == len(prompts) - 1


def test_the_model_answers_another_call_while_a_stream_is_read(tiny_model: LlamaModel) -> None:
    results = tiny_model.classify_iter(["ab", "abab", "b"] * 30, labels=["a", "b"])
    for prompt, result in zip(["ab", "abab", "b"], results, strict=False):
        [other] = tiny_model.classify([prompt], labels=["a", "b"])
        assert other.probabilities == pytest.approx(result.probabilities, abs=1e-3)
    assert len(list(results)) == 87


@pytest.mark.slow
def test_labels_of_several_tokens_are_scored_step_by_step(
    real_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_model, "equal_rows", False)
    labels = ("sports team", "sports car", "supercalifragilistic", "science")
    results = real_model.classify(PROMPTS * 9, labels=labels)
    assert [result.error for result in results] == [None] * len(results)
    for prompt, result in zip(PROMPTS, results, strict=False):
        assert result.logprobs is not None
        for label in labels:
            expected = real_model.score([prompt], [f" {label}"])[0].logprob
            assert abs(result.logprobs[label] - expected) <= 8 * EXACT
    again = real_model.classify(PROMPTS * 9, labels=labels)
    slack = 8 * EXACT
    for one, other in zip(again[:6], results[-6:], strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=slack)


def test_labels_that_begin_inside_the_prompts_last_token(smollm2_model: LlamaModel) -> None:
    plain = smollm2_model.classify(["It is fin"], return_logits=True)[0]
    found = smollm2_model.classify(
        ["It is fin"], labels=["ance", "ished"], label_prefix="", return_logits=True
    )[0]
    assert found.token == plain.token
    apart = np.abs(rows([found])[0] - rows([plain])[0]).max()
    assert apart <= EXACT
    assert found.logprobs is not None
    score = smollm2_model.score(["It is"], [" finance"])[0]
    assert found.logprobs["ance"] == pytest.approx(score.logprob, abs=1e-3)


def test_each_rows_error_is_its_own(smollm2_model: LlamaModel) -> None:
    long = "word " * 1100
    results = smollm2_model.classify(["", PROMPTS[0], long, "a\ud800"])
    kinds = [type(result.error).__name__ for result in results]
    assert kinds == ["EmptyPromptError", "NoneType", "PromptTooLongError", "RequestError"]
    assert isinstance(results[0].error, EmptyPromptError)
    assert isinstance(results[2].error, PromptTooLongError)
    with pytest.raises(LabelError):
        smollm2_model.classify(PROMPTS, labels=["a", "a"])
    with pytest.raises(LabelError, match="the limit is 256"):
        smollm2_model.classify(PROMPTS, labels=["a", "a b " * 150])


def test_a_prompt_as_long_as_the_context(tiny_model: LlamaModel) -> None:
    limit = tiny_model.info.context_length
    prompt = "!" * limit
    assert len(tiny_model.encode(prompt)) == limit
    whole, over = tiny_model.classify([prompt, prompt + "!"], return_logits=True)
    assert whole.error is None
    assert isinstance(over.error, PromptTooLongError)


def test_labels_fit_the_context_behind_their_prompt(tiny_model: LlamaModel) -> None:
    limit = tiny_model.info.context_length
    prompts = ["!" * limit, "!" * (limit - 1)]
    over, fits = tiny_model.classify(prompts, labels=["!!", '"'], label_prefix="")
    assert isinstance(over.error, PromptTooLongError)
    assert (over.error.length, over.error.limit) == (limit + 1, limit)
    assert "with its longest label" in str(over.error)
    assert fits.label is not None
    alone = tiny_model.classify(prompts[:1], labels=["!", '"'], label_prefix="")[0]
    assert alone.label is not None  # one token, which is never fed


def test_labels_that_no_cell_is_left_for(tiny_gguf: Callable[..., Path]) -> None:
    own = {"n_threads": 1}
    with core.load_model(
        tiny_gguf(), backend="llama_cpp", context_len=256, parallel_slots=1, options=own
    ) as model:
        results = model.classify(["!" * 256, "!" * 255], labels=["!!", '"'], label_prefix="")
        assert isinstance(results[0].error, PromptTooLongError)
        assert results[1].label is not None


def test_a_cancel_ends_what_is_not_done(tiny_model: LlamaModel) -> None:
    class After:
        left = 2

        def is_set(self) -> bool:
            self.left -= 1
            return self.left < 0

    prompts = [f"{letter}" * 400 for letter in "abcdef"]
    results = tiny_model.classify(prompts, cancel=After())
    errors = [result.error for result in results]
    assert any(isinstance(error, GenerationCancelled) for error in errors)
    assert tiny_model.classify(["ab"])[0].error is None
    assert free_cells(tiny_model) == tiny_model._passes._pool.size


def test_classify_beside_streams_waits_for_cells(tiny_model: LlamaModel) -> None:
    """Streams hold nearly all cells: classify runs them on until it has room."""
    alone = logits(tiny_model, ["!" * 300])[0]
    streams = [tiny_model.generate("ab", max_tokens=490) for _ in range(2)]
    first = [next(stream) for stream in streams]
    assert len(first) == 2
    assert np.allclose(logits(tiny_model, ["!" * 300])[0], alone, atol=1e-4)
    for stream in streams:
        stream.close()
    assert free_cells(tiny_model) == tiny_model._passes._pool.size


def test_threads_get_their_own_rows(smollm2_model: LlamaModel) -> None:
    expected = [smollm2_model.classify([prompt], labels=LABELS)[0] for prompt in PROMPTS]
    found: dict[int, list[ClassifyResult]] = {}

    def work(number: int) -> None:
        turned = PROMPTS[number:] + PROMPTS[:number]
        found[number] = smollm2_model.classify(turned, labels=LABELS)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, results in found.items():
        wanted = expected[number:] + expected[:number]
        assert [result.label for result in results] == [result.label for result in wanted]
    assert len(found) == 4


def test_a_pass_that_fails_is_one_rows_error(
    tiny_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = logits(tiny_model, ["ab", "aab", "b"])
    decode = LlamaSession.decode

    def failing(session: LlamaSession, batch: LlamaBatch) -> None:
        if 7 in batch._ids[: batch._size]:
            raise DecodeError("llama_decode failed with the code -3")
        decode(session, batch)

    bad = next(chr(code) for code in range(33, 127) if 7 in tiny_model.encode(chr(code)))
    monkeypatch.setattr(LlamaSession, "decode", failing)
    results = tiny_model.classify(["ab", bad, "aab", "b"], return_logits=True)
    assert "code -3" in str(results[1].error)
    found = rows([results[0], *results[2:]])
    assert all(np.allclose(one, other, atol=1e-4) for one, other in zip(found, wanted, strict=True))


def test_logits_that_are_no_numbers_are_an_error(
    tiny_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(session: LlamaSession, index: int) -> Row:
        return np.full(session.vocab_size, np.nan, np.float32)

    monkeypatch.setattr(LlamaSession, "logits", broken)
    assert isinstance(tiny_model.classify(["ab"])[0].error, InvalidModelError)
    assert isinstance(tiny_model.score(["ab"], [" ab"])[0].error, InvalidModelError)
    with pytest.raises(InvalidModelError):
        list(tiny_model.generate("ab"))


def test_a_beginning_that_fails_is_done_without(
    tiny_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: object, ids: object, between: object) -> None:
        raise DecodeError("no")

    prompts = ["!" * 100 + letter for letter in "abc"]
    wanted = logits(tiny_model, prompts)
    monkeypatch.setattr(SharedPrefix, "_compute", failing)
    found = logits(tiny_model, prompts)
    assert all(np.allclose(one, other, atol=1e-4) for one, other in zip(found, wanted, strict=True))
