"""Labels of several tokens against step-by-step scoring with plain forward passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.kit.labels import LabelScores, build_trie, score_labels
from core.kit.labels import Path as TokenPath
from core_mlx_native.classify import labels
from core_mlx_native.classify.labels import DeviceLabels, ask_labels, tree_chunks
from core_mlx_native.loaded import load_decoder
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.prefill import prefill
from core_mlx_native.to_python import floats
from core_runtime.text.label_tokens import LabelQuestion
from plugins.mlx_native.tests.network.logits import last_logits

Checkpoint = Callable[..., Path]

PROMPTS = [[5, 9, 13, 2, 40, 41, 42, 43, 44, 45, 46, 47], [7], [8, 8, 3, 60]]
PATHS = [(3,), (3, 4), (3, 4, 5, 6), (9, 1), (9, 2), (50, 51, 52)]
LABELS = [str(path) for path in PATHS]


def read(asked: list[DeviceLabels]) -> list[LabelScores]:
    found = dict(scores for each in asked for scores in each.read().scores())
    return [scores for _, scores in sorted(found.items()) if isinstance(scores, LabelScores)]


def step_by_step(decoder: Decoder, prompt: list[int], path: TokenPath) -> float:
    total = 0.0
    for end, token in enumerate(path):
        logits = last_logits(decoder, [[*prompt, *path[:end]]])[0]
        total += floats(logits - mx.logsumexp(logits))[token]
    return total


@pytest.fixture(params=["llama", "gemma3"])
def decoder(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Decoder:
    return load_decoder(checkpoint(request.param))


@pytest.mark.parametrize("chunk", [1, 3, 256])
def test_every_label_scores_as_it_does_step_by_step(
    decoder: Decoder, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "_NODES", chunk)
    trie = build_trie(LABELS, PATHS)
    batch = prefill(decoder, PROMPTS)
    found = read(ask_labels(decoder, batch, [LabelQuestion(len(p), trie) for p in PROMPTS]))
    for prompt, scores in zip(PROMPTS, found, strict=True):
        for label, path in zip(LABELS, PATHS, strict=True):
            assert scores.logprobs[label] == pytest.approx(
                step_by_step(decoder, prompt, path), abs=1e-4
            )


def test_rows_may_begin_their_labels_earlier_and_have_tries_of_their_own(decoder: Decoder) -> None:
    one, other = build_trie(LABELS, PATHS), build_trie(["x", "y"], [(5, 6), (6,)])
    questions = [LabelQuestion(10, one), LabelQuestion(1, other), LabelQuestion(2, one)]
    found = read(ask_labels(decoder, prefill(decoder, PROMPTS), questions))
    for prompt, question, scores in zip(PROMPTS, questions, found, strict=True):
        for label, path in zip(question.trie.labels, question.trie.paths, strict=True):
            expected = step_by_step(decoder, prompt[: question.anchor], path)
            assert scores.logprobs[label] == pytest.approx(expected, abs=1e-4)


def test_a_head_read_in_pieces_gives_the_same(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    trie = build_trie(LABELS, PATHS)
    questions = [LabelQuestion(len(p), trie) for p in PROMPTS]
    whole = read(ask_labels(decoder, prefill(decoder, PROMPTS), questions))
    monkeypatch.setattr(type(decoder.ops), "head_floats", 1)
    pieces = read(ask_labels(decoder, prefill(decoder, PROMPTS), questions))
    for left, right in zip(whole, pieces, strict=True):
        assert left.logprobs == pytest.approx(right.logprobs, abs=1e-5)


def test_label_mass_is_the_probability_of_the_first_tokens(decoder: Decoder) -> None:
    trie = build_trie(["a", "b"], [(3,), (9,)])
    [scores] = read(ask_labels(decoder, prefill(decoder, [[5]]), [LabelQuestion(1, trie)]))
    probabilities = mx.softmax(last_logits(decoder, [[5]])[0])
    mass = (probabilities[3] + probabilities[9]).item()
    assert scores.label_mass == pytest.approx(mass, abs=1e-5)
    assert scores.probabilities["a"] == pytest.approx(probabilities[3].item() / mass, abs=1e-5)


paths = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple),
    min_size=1,
    max_size=30,
    unique=True,
)


@given(paths, st.integers(1, 12))
def test_chunks_hold_every_node_and_all_of_its_ancestors(
    paths: list[TokenPath], limit: int
) -> None:
    trie = build_trie([str(path) for path in paths], paths)
    seen = set()
    for chunk in tree_chunks(trie.prefixes[1:], limit):
        assert len(set(chunk)) == len(chunk)
        assert len(chunk) <= max(limit, 4)  # one line of ancestors always fits
        for node in chunk:
            assert len(node) == 1 or node[:-1] in chunk
        seen.update(chunk)
    assert seen == set(trie.prefixes[1:])


def test_the_comparison_can_tell_a_wrong_anchor(decoder: Decoder) -> None:
    trie = build_trie(LABELS, PATHS)
    asked = ask_labels(decoder, prefill(decoder, PROMPTS[:1]), [LabelQuestion(11, trie)])
    [scores] = read(asked)
    expected = step_by_step(decoder, PROMPTS[0], PATHS[2])
    assert not math.isclose(scores.logprobs[LABELS[2]], expected, abs_tol=1e-2)
    assert score_labels(trie, [[0.0] * len(c) for c in trie.children]).label_mass == 1.0
