"""``labels_only`` with labels of several tokens: the label of all of them, from few nodes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import core
from core import ClassifyResult, InvalidModelError
from core_llama_cpp.model import LlamaModel
from core_llama_cpp.session import LlamaSession
from core_runtime.label_search import LabelSearch
from core_runtime.sequences.passes import Passes

MESSAGES = [
    "My new card has not come yet.",
    "I was charged two times for one coffee.",
    "How long does a transfer take?",
]
PROMPTS = [f"Customer: {message} This question is about a" for message in MESSAGES]
THINGS = ("card", "exchange rate", "payment")
TROUBLES = ("arrival", "not working", "pending too long", "lost or stolen")
LONG = tuple(f"{thing} {trouble}" for thing in THINGS for trouble in TROUBLES)
LABELS = LONG + THINGS  # some of them are the beginning of others


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inner nodes that searches read, one after another."""
    read: list[int] = []
    real = LabelSearch.read

    def watched(self: LabelSearch, node: int, logprobs: Sequence[float]) -> None:
        read.append(node)
        real(self, node, logprobs)

    monkeypatch.setattr(LabelSearch, "read", watched)
    return read


def inner_nodes(model: LlamaModel, prompt: str, labels: Sequence[str]) -> int:
    """The number of texts that a token of some label follows."""
    head = len(model.encode(prompt))
    paths = [tuple(model.encode(f"{prompt} {label}")) for label in labels]
    return len({path[:end] for path in paths for end in range(head, len(path))})


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each round have one node of each row, as where many rows run together."""
    wanted = LabelSearch.wanted
    monkeypatch.setattr(LabelSearch, "wanted", lambda self, most: wanted(self, 1))


def test_the_label_is_that_of_all_and_few_nodes_are_read(
    smollm2_model: LlamaModel, nodes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for labels in (LABELS, LONG):
        wanted = smollm2_model.classify(PROMPTS, labels=labels)
        assert not nodes
        results = smollm2_model.classify(PROMPTS, labels=labels, labels_only=True)
        assert results == [ClassifyResult(label=result.label) for result in wanted]
        assert smollm2_model.classify(PROMPTS[:1], labels=labels, labels_only=True) == results[:1]
        nodes.clear()

    one_by_one(monkeypatch)
    assert smollm2_model.classify(PROMPTS, labels=LONG, labels_only=True) == results
    inner = sum(inner_nodes(smollm2_model, prompt, LONG) for prompt in PROMPTS)
    assert len(nodes) < inner / 2


def test_of_few_nodes_all_are_read(smollm2_model: LlamaModel, nodes: list[int]) -> None:
    wanted = smollm2_model.classify(PROMPTS, labels=LONG[:3])
    results = smollm2_model.classify(PROMPTS, labels=LONG[:3], labels_only=True)
    assert results == [ClassifyResult(label=result.label) for result in wanted]
    assert not nodes


@pytest.mark.parametrize("end", [" ", " ("])
def test_labels_that_begin_within_the_prompt_are_searched_from_there(
    smollm2_model: LlamaModel, end: str
) -> None:
    prompts = [prompt + end for prompt in PROMPTS]
    wanted = smollm2_model.classify(prompts, labels=LABELS, label_prefix="")
    results = smollm2_model.classify(prompts, labels=LABELS, label_prefix="", labels_only=True)
    assert results == [ClassifyResult(label=result.label) for result in wanted]


def test_rows_share_room_with_others_and_equal_rows_are_searched_once(
    tiny_model: LlamaModel, nodes: list[int]
) -> None:
    """More rows than have room at once, with more nodes each than fit in a pass."""
    prompts = ["ab " * (1 + place % 40) + "cb"[place % 2] for place in range(120)]
    labels = [f"{a}{b} {c}" for a in "abc" for b in "abc" for c in "abc"]
    wanted = tiny_model.classify(prompts, labels=labels)
    results = tiny_model.classify(prompts, labels=labels, labels_only=True)
    roots = nodes.count(0)
    assert roots == len(set(prompts))
    for one, other in zip(results, wanted, strict=True):
        assert (one.error, one.probabilities, one.margin, one.token) == (None, None, None, None)
        best = max((other.logprobs or {}).values())
        assert (other.logprobs or {})[one.label or ""] >= best - 1e-3


def test_a_call_is_stopped_between_two_rounds(
    smollm2_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel, rounds = threading.Event(), 0
    real = Passes._run_round

    def watched(self: Passes, *given: Any) -> None:
        nonlocal rounds
        rounds += 1
        real(self, *given)
        cancel.set()

    one_by_one(monkeypatch)
    monkeypatch.setattr(Passes, "_run_round", watched)
    results = smollm2_model.classify(PROMPTS, labels=LONG, labels_only=True, cancel=cancel)
    assert {type(result.error) for result in results} == {core.GenerationCancelled}
    assert rounds <= 2  # the second one is stopped, before it has run
    monkeypatch.setattr(Passes, "_run_round", real)
    again = smollm2_model.classify(PROMPTS, labels=LONG, labels_only=True)
    assert all(result.error is None for result in again)


def test_logits_that_are_no_numbers_are_an_error_of_their_row(
    smollm2_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first token of a label that is read; its neighbours have their labels."""
    real, count = LlamaSession.logits, 0

    def spoilt(self: LlamaSession, index: int) -> Any:
        nonlocal count
        count += 1
        logits = real(self, index)
        return np.full_like(logits, np.nan) if count == len(PROMPTS) + 1 else logits

    wanted = smollm2_model.classify(PROMPTS, labels=LABELS, labels_only=True)
    monkeypatch.setattr(LlamaSession, "logits", spoilt)
    results = smollm2_model.classify(PROMPTS, labels=LABELS, labels_only=True)
    assert [type(result.error) for result in results if result.error] == [InvalidModelError]
    for one, other in zip(results, wanted, strict=True):
        assert one.error is not None or one == other


def test_with_everything_wanted_everything_is_given(smollm2_model: LlamaModel) -> None:
    results = smollm2_model.classify(PROMPTS, labels=LABELS, labels_only=True, return_logits=True)
    wanted = smollm2_model.classify(PROMPTS, labels=LABELS)
    for one, other in zip(results, wanted, strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-3)
