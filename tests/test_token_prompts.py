"""Prompts as token ids come to what their texts come to, on both in-process backends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import core
import core_tasks
from tests.attacks.tiny_models import checkpoint, gguf

TEXTS = ["a b a", "ab no ab", "b"]


@pytest.fixture(
    scope="module", params=["mlx_cpu", pytest.param("llama_cpp", marks=pytest.mark.whole)]
)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    place = tmp_path_factory.mktemp("model")
    path = (checkpoint if request.param == "mlx_cpu" else gguf)(place)
    with core.load_model(path, backend=request.param) as loaded:
        assert isinstance(loaded, core.TokenPrompts)
        yield loaded


def test_a_stream_of_ids_is_that_of_their_text(model: Any) -> None:
    for text in TEXTS:
        drawn = {"max_tokens": 9, "temperature": 1.0, "seed": 3}
        read = model.stream_tokens(model.encode(text), **drawn)
        tokens = list(read)
        assert tokens == list(model.generate(text, **drawn))
        assert read.finish_reason in ("length", "stop")
        assert read.metrics.prompt_tokens == len(model.encode(text))


@pytest.mark.parametrize("wrong", [[], [10**6]])
def test_what_is_wrong_with_ids_is_raised_from_their_stream(model: Any, wrong: list[int]) -> None:
    stream = model.stream_tokens(wrong)
    with pytest.raises(core.CoreError):
        next(stream)


def test_several_prompts_are_no_stream(model: Any) -> None:
    with pytest.raises(TypeError, match="a list or an array of integers"):
        model.stream_tokens([[1], [2]])


def test_scores_of_ids_are_those_of_their_texts(model: Any) -> None:
    heads, tails, pairs = [], [], []
    for text in TEXTS:
        head, whole = model.encode(text), model.encode(f"{text} ab b")
        assert whole[: len(head)] == head
        heads.append(head)
        tails.append(whole[len(head) :])
        pairs.append((text, " ab b"))
    found = model.score_tokens(heads, tails)
    expected = model.score(*map(list, zip(*pairs, strict=True)))
    slack = model.info.logit_tolerance + 1e-5
    for one, other in zip(found, expected, strict=True):
        assert one.token_logprobs == pytest.approx(other.token_logprobs, abs=slack)
        assert one.is_greedy == other.is_greedy


def test_a_text_is_scored_from_its_beginning(model: Any) -> None:
    ids = model.encode("ab a b ab no")
    [whole] = model.score_tokens([ids[:1]], [ids[1:]])
    single = model.score_tokens([ids[:n] for n in range(1, len(ids))], [[n] for n in ids[1:]])
    slack = 2 * model.info.logit_tolerance + 1e-4
    assert whole.token_logprobs == pytest.approx([each.logprob for each in single], abs=slack)


def test_a_bad_pair_is_its_own_error(model: Any) -> None:
    size, limit = model.info.vocab_size, model.info.context_length
    ids = model.encode("a b")
    found = model.score_tokens(
        [[], ids, ids, ids, ids], [[1], ids[-1:], [], [size], [1] * (limit + 1)]
    )
    kinds = [type(each.error) for each in found]
    assert kinds[:3] == [core.EmptyPromptError, type(None), core.RequestError]
    assert found[3].error is not None
    assert kinds[4] is core.PromptTooLongError
    with pytest.raises(core.InvalidOptionError, match="one for each prompt"):
        model.score_tokens([ids, ids], [ids])


def test_a_cancel_stops_scores_of_ids(model: Any) -> None:
    cancel = threading.Event()
    cancel.set()
    [found] = model.score_tokens([[1, 2]], [[1]], cancel=cancel)
    assert isinstance(found.error, core.GenerationCancelled)


def test_samples_of_an_evaluation_come_from_one_prefill(model: Any) -> None:
    items = [core_tasks.Item("a b ab a b ab a", ("x",)), core_tasks.Item("b", ("x",))]
    drawn: dict[str, Any] = {"num_samples": 4, "temperature": 1.5, "seed": 5, "max_tokens": 6}
    put = core_tasks.Prompting("{question}")
    found = core_tasks.evaluate(model, items, prompting=put, metric="exact", stop=["zz"], **drawn)
    again = core_tasks.evaluate(model, items, prompting=put, metric="exact", stop=["zz"], **drawn)
    spent = model.metrics
    for item, same, asked in zip(found.items, again.items, items, strict=True):
        texts = [sample.output for sample in item.samples]
        assert texts == [sample.output for sample in same.samples]
        assert len(set(texts)) > 1
        plain = model.generate(asked.question, max_tokens=6, temperature=1.5, seed=5, stop=["zz"])
        assert texts[0] == plain.text()
    # Each prompt was computed once for its four samples.
    asked_for = sum(len(model.encode(item.question)) for item in items)
    assert spent.prompt_tokens == asked_for


def test_sequences_are_told_and_raised() -> None:
    sound = core.TokenSequence((1, 2), (False, True), "length", None, (-0.5,))
    assert sound.raise_for_error() is sound
    assert sound.to_dict() == {
        "ids": [1, 2],
        "generated": [False, True],
        "finish_reason": "length",
        "logprobs": [-0.5],
        "error": None,
    }
    failed = core.TokenSequence((), (), "error", core.RequestError("odd"))
    with pytest.raises(core.RequestError, match="odd"):
        failed.raise_for_error()
