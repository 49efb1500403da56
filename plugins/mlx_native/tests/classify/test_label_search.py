"""The search for the best label alone, against reading every node of the labels' trie."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import core
from core.kit.base import never_stop
from core.kit.labels import LabelTrie, build_trie
from core.kit.labels import Path as TokenPath
from core_mlx_native.backend import Cpu
from core_mlx_native.classify import search as search_module
from core_mlx_native.classify.labels import ask_labels
from core_mlx_native.classify.search import find_labels
from core_mlx_native.loaded import LoadedModel, load_decoder
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.prefill import prefill
from core_runtime.label_search import LabelSearch
from core_runtime.text.label_tokens import LabelQuestion

Checkpoint = Callable[..., Path]

# Longer than the window of 8 of Gemma's sliding layers, and labels that reach beyond it.
PROMPTS = [[5, 9, 13, 2, 40, 41, 42, 43, 44, 45, 46, 47], [7], [8, 8, 3, 60]]
DEEP = tuple(range(20, 32))
PATHS = [(3,), (3, 4), (3, 4, 5, 6), (9, 1), (9, 2), (50, 51, 52), DEEP, (*DEEP[:10], 60, 61)]
TOLERANCE = 1e-4
LABELS = ["ab ab", "no no", "no ab no", "b", "c c", "a b c", "ab no b", "x y z x"]
TEXTS = ["ab ab no", "a", "no no no no no no no no no", "x y z", "ab"]


def trie_of(paths: Sequence[TokenPath]) -> LabelTrie:
    return build_trie([str(path) for path in paths], paths)


@pytest.fixture(params=["llama", "gemma3"])
def decoder(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Decoder:
    return load_decoder(checkpoint(request.param))


def whole(
    decoder: Decoder, questions: Sequence[LabelQuestion]
) -> list[dict[TokenPath, list[float]]]:
    """For each row, the values after every inner node, from one pass over all of them."""
    results: dict[int, dict[TokenPath, list[float]]] = {}
    for asked in ask_labels(decoder, prefill(decoder, PROMPTS), questions):
        host = asked.read()
        children = dict(zip(host.trie.prefixes, host.trie.children, strict=True))
        for row, values in zip(host.rows, host.values, strict=True):
            rest = iter(values)
            results[row] = {node: [next(rest) for _ in children[node]] for node in host.nodes}
    return [results[row] for row in sorted(results)]


def scores(trie: LabelTrie, values: dict[TokenPath, list[float]]) -> list[float]:
    """The score of each label."""
    children = dict(zip(trie.prefixes, trie.children, strict=True))
    return [
        sum(values[path[:end]][children[path[:end]].index(token)] for end, token in enumerate(path))
        for path in trie.paths
    ]


class Watched(LabelSearch):
    """A search that notes the values of each node that it is given."""

    seen: dict[int, Sequence[float]]

    def read(self, node: int, logprobs: Sequence[float]) -> None:
        self.__dict__.setdefault("seen", {})[node] = logprobs
        super().read(node, logprobs)


@pytest.mark.parametrize("tokens", [1, 3, 6, 12, 1000])
def test_rounds_read_the_values_of_one_pass_over_all_nodes(
    decoder: Decoder, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of different lengths, tries and numbers of nodes; one has no question."""
    monkeypatch.setattr(search_module, "LabelSearch", Watched)
    one, other = trie_of(PATHS), trie_of([(11, 12), (11, 13, 14), (15, 16, 17, 18)])
    questions = [LabelQuestion(11, one), LabelQuestion(1, other), LabelQuestion(4, one)]
    wanted = whole(decoder, questions)
    batch = prefill(decoder, PROMPTS)

    asked: list[LabelQuestion | None] = [*questions]
    for left_out in (None, 0, 1):
        some = [None if row == left_out else each for row, each in enumerate(asked)]
        results = find_labels(decoder, batch, some, tokens, never_stop)
        assert set(results) == {row for row in range(3) if row != left_out}
        for row, search in results.items():
            trie = search.tree.trie
            assert isinstance(search, Watched)
            for node, values in search.seen.items():
                expected = wanted[row][trie.prefixes[node]]
                if node == 0:  # logits, and not their logarithms: off by one number
                    expected = [value + values[0] - expected[0] for value in expected]
                assert values == pytest.approx(expected, abs=TOLERANCE)
            ranked = scores(trie, wanted[row])
            assert ranked[trie.labels.index(search.label)] >= max(ranked) - TOLERANCE


@given(
    st.lists(
        st.lists(st.integers(5, 9), min_size=1, max_size=4).map(tuple),
        min_size=2,
        max_size=20,
        unique=True,
    ),
    st.integers(1, 40),
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_label_is_the_best_of_all(
    decoder: Decoder, paths: list[TokenPath], tokens: int
) -> None:
    trie = trie_of(paths)
    questions = [LabelQuestion(len(prompt), trie) for prompt in PROMPTS]
    results = find_labels(decoder, prefill(decoder, PROMPTS), questions, tokens, never_stop)
    for row, values in enumerate(whole(decoder, questions)):
        ranked = scores(trie, values)
        assert ranked[trie.labels.index(results[row].label)] >= max(ranked) - TOLERANCE


def test_rows_that_have_their_label_leave_and_few_nodes_run(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[tuple[int, ...]] = []
    real = Decoder.__call__

    def watched(self: Decoder, tokens: mx.array, *rest: Any) -> Any:
        passes.append(tokens.shape)
        return real(self, tokens, *rest)

    batch = prefill(decoder, PROMPTS)
    # The random model likes no token much, so that a longer label is less likely than a short one.
    short = [(first, second) for first in range(5, 15) for second in (1, 2)]
    trie = trie_of([*short, *((*path, 3, 4) for path in short)])
    monkeypatch.setattr(Decoder, "__call__", watched)
    questions = [LabelQuestion(len(prompt), trie) for prompt in PROMPTS]
    find_labels(decoder, batch, questions, 1, never_stop)
    rows = [shape[0] for shape in passes]
    assert {shape[1] for shape in passes} == {1}
    assert rows == sorted(rows, reverse=True)
    assert sum(rows) <= len(PROMPTS) * 30 < len(PROMPTS) * (len(trie.prefixes) - 1)

    passes.clear()
    find_labels(decoder, batch, questions, 1000, never_stop)
    assert passes == [(len(PROMPTS), len(trie.prefixes) - 1)]  # all that is left, at once


# ------------------------------------------------------------------------------- whole models


@pytest.fixture(params=["llama", "gemma3"])
def directory(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Path:
    return checkpoint(request.param)


def loaded(directory: Path, **options: Any) -> core.TextModel:
    return Cpu().load_model(directory, core.LoadConfig(options=options))


@pytest.mark.parametrize("budget", [1, 16, 1024])
def test_labels_only_gives_the_label_of_all_and_nothing_else(directory: Path, budget: int) -> None:
    with loaded(directory, token_budget=budget) as model:
        wanted = model.classify(TEXTS, labels=LABELS)
        results = model.classify(TEXTS, labels=LABELS, labels_only=True)
        alone = [model.classify([text], labels=LABELS, labels_only=True)[0] for text in TEXTS]
    assert [result.label for result in wanted] == [result.label for result in results]
    assert results == alone
    assert results == [core.ClassifyResult(label=result.label) for result in results]


def test_probabilities_are_given_where_each_label_is_one_token(directory: Path) -> None:
    with loaded(directory) as model:
        short = model.classify(TEXTS, labels=["a", "b"], labels_only=True)
        asked = model.classify(TEXTS, labels=LABELS, labels_only=True, return_logits=True)
        scored = model.classify(TEXTS, labels=LABELS)
    assert all(sum((result.probabilities or {}).values()) == pytest.approx(1) for result in short)
    assert all(result.margin is not None for result in short)
    for one, other in zip(asked, scored, strict=True):  # logits, and so everything, were asked for
        assert one.probabilities == pytest.approx(other.probabilities, abs=TOLERANCE)
        assert one.logits is not None


def test_prompts_of_one_call_may_be_of_both_kinds(directory: Path) -> None:
    """Where the prompt ends in a space, "ab" is one token, and two labels begin with it."""
    texts, labels = ["no no", "no no ", "no", "no "], ["ab", "no"]
    with loaded(directory) as model:
        wanted = model.classify(texts, labels=labels, label_prefix=" b")
        results = model.classify(texts, labels=labels, label_prefix=" b", labels_only=True)
    assert [result.label for result in results] == [result.label for result in wanted]
    assert [result.probabilities is None for result in results] == [True, False, True, False]


def test_equal_rows_are_searched_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 0
    real = LabelSearch.__init__

    def counted(self: LabelSearch, tree: Any) -> None:
        nonlocal rows
        rows += 1
        real(self, tree)

    monkeypatch.setattr(LabelSearch, "__init__", counted)
    with loaded(directory) as model:
        results = model.classify(TEXTS * 3, labels=LABELS, labels_only=True, temperature=0.7)
    assert rows == len(TEXTS)
    assert results == results[: len(TEXTS)] * 3


def test_a_call_is_stopped_between_two_rounds(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel, rounds = threading.Event(), 0
    real = search_module._run

    def watched(*given: Any) -> Any:
        nonlocal rounds
        rounds += 1
        cancel.set()
        return real(*given)

    monkeypatch.setattr(search_module, "_run", watched)
    monkeypatch.setattr(LoadedModel, "round_tokens", 1)
    with loaded(directory) as model:
        results = model.classify(TEXTS, labels=LABELS, labels_only=True, cancel=cancel)
        assert {type(result.error) for result in results} == {core.GenerationCancelled}
        assert rounds == 1
        monkeypatch.setattr(search_module, "_run", real)
        again = model.classify(TEXTS, labels=LABELS, labels_only=True)
    assert all(result.error is None for result in again)


def test_values_that_are_no_numbers_are_the_rows_error(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a node of one row alone: the others have their labels."""
    with loaded(directory) as model:
        wanted = model.classify(TEXTS, labels=LABELS, labels_only=True)
        real, searches = LabelSearch.read, list[LabelSearch]()

        def spoilt(self: LabelSearch, node: int, logprobs: Sequence[float]) -> None:
            if self not in searches:
                searches.append(self)
            bad = node and self is searches[1]
            real(self, node, [float("nan")] * len(logprobs) if bad else logprobs)

        monkeypatch.setattr(LabelSearch, "read", spoilt)
        results = model.classify(TEXTS, labels=LABELS, labels_only=True)
    errors = [result for result in results if result.error is not None]
    assert [type(result.error) for result in errors] == [core.InvalidModelError]
    assert [one.label or other.label for one, other in zip(results, wanted, strict=True)] == [
        result.label for result in wanted
    ]


def test_out_of_memory_in_a_round_the_micro_batch_is_halved(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = search_module._run

    def scarce(decoder: Decoder, batch: Any, rows: Sequence[Any], wanted: Any) -> Any:
        if len(rows) > 2:
            raise RuntimeError("[malloc] Unable to allocate 1 bytes")
        return real(decoder, batch, rows, wanted)

    with loaded(directory) as model:
        wanted = model.classify(TEXTS, labels=LABELS, labels_only=True)
        monkeypatch.setattr(search_module, "_run", scarce)
        assert model.classify(TEXTS, labels=LABELS, labels_only=True) == wanted
