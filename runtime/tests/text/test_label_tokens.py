"""Label tokens found from a prompt's end must be those found from the whole prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.kit.labels import label_paths, label_texts
from core_runtime.text import label_tokens
from core_runtime.text.label_tokens import LabelTokens
from core_runtime.tokenizer.model_tokenizer import Tokenizer

LABELS = ["finance", "not sure", "not", "7", "é", "a b  c"]
ENDS = [
    "Topic:",
    "Topic: ",
    "Topic:\n",
    "Topic:\n\n",
    "x\t",
    "x   ",
    "f",
    "sport",
    "1",
    "é",
    "“",
    ".",
    # Some take no space, and one looks like it until more of the prompt is seen.
    '"',
    ' "',
    ":'",
    "x'",
    '("',
    "**",
    " **",
    "x**",
    "<topic>",
    "</topic>",
    " ->",
    "label=",
    "label =",
    "是",
    "。",
    "か\u3099",
    "ที่",
    "한",
    "\u200b",
    "é\u0301\u200d",
]
ALPHABET = "a \n\"'*_(<>/=:是。\u3099\u200bท1"


class Counting:
    """A tokenizer that counts how often labels are tokenised."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.calls, self.most = tokenizer, 0, 0

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        self.calls += 1
        self.most = max(self.most, len(texts))
        return self.tokenizer.encode_batch(texts)

    def encode_continued(self, prompt: str, continuations: Sequence[str]) -> list[list[int]]:
        self.calls += 1
        return self.tokenizer.encode_continued(prompt, continuations)

    def last_cut(self, text: str) -> int:
        return self.tokenizer.last_cut(text)


@pytest.fixture(scope="module", params=["smollm2_dir", "gemma3_dir"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    directory: Path = request.getfixturevalue(request.param)
    return Tokenizer.from_directory(directory)


def from_whole_prompt(
    tokenizer: Tokenizer, prompt: str, labels: Sequence[str] = LABELS, prefix: str = " "
) -> tuple[int, list[tuple[int, ...]]]:
    texts = label_texts(prompt, labels, prefix)
    lead = len(tokenizer.encode(""))
    return label_paths(
        tokenizer.encode(prompt),
        [tokenizer.encode(prompt + text) for text in texts],
        lambda: [tokenizer.encode(text)[lead:] for text in texts],
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(st.text(min_size=1, max_size=80), st.sampled_from(ENDS))
def test_any_prompt_and_any_end(tokenizer: Tokenizer, start: str, end: str) -> None:
    prompt = (start + end).encode(errors="ignore").decode()
    [found] = LabelTokens(tokenizer, LABELS, " ").after([prompt], [tokenizer.encode(prompt)])
    assert (found.anchor, list(found.trie.paths)) == from_whole_prompt(tokenizer, prompt)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(st.lists(st.text(ALPHABET, min_size=1, max_size=20), min_size=2, max_size=6))
def test_ends_that_are_alike_as_far_as_they_are_shared(
    tokenizer: Tokenizer, starts: list[str]
) -> None:
    prompts = [start + end for start in starts for end in ("", '"', "*", "' '", "word'")]
    prompts = [prompt for prompt in prompts if prompt]
    ids = tokenizer.encode_batch(prompts)
    for prefix in (" ", "\n", "", "=> "):
        found = LabelTokens(tokenizer, LABELS, prefix).after(prompts, ids)
        for prompt, question in zip(prompts, found, strict=True):
            wanted = from_whole_prompt(tokenizer, prompt, prefix=prefix)
            assert (question.anchor, list(question.trie.paths)) == wanted


def test_the_whole_prompt_decides_what_its_tail_leaves_open(tokenizer: Tokenizer) -> None:
    """Their last tokens are alike, and a tag opens in one of them alone."""
    names = " ".join(f"n{number}=x" for number in range(6))
    prompts = [f"one <topic {names}>", f"one topic {names}>"]
    ids = tokenizer.encode_batch(prompts)
    assert ids[0][-8:] == ids[1][-8:]
    found = list(LabelTokens(tokenizer, LABELS, " ").after(prompts, ids))
    for prompt, question in zip(prompts, found, strict=True):
        assert (question.anchor, list(question.trie.paths)) == from_whole_prompt(tokenizer, prompt)
    assert found[0].trie.paths != found[1].trie.paths


def test_labels_that_merge_with_the_last_word(tokenizer: Tokenizer) -> None:
    """Of " brown", all that stands behind the last cut, "browns" has no token."""
    labels, prompts = ["s", "t", "ing"], ["The quick brown", "A dog, and the brown"]
    questions = LabelTokens(tokenizer, labels, "").after(prompts, tokenizer.encode_batch(prompts))
    for prompt, question in zip(prompts, questions, strict=True):
        wanted = from_whole_prompt(tokenizer, prompt, labels, "")
        assert (question.anchor, list(question.trie.paths)) == wanted


def test_prompts_with_one_end_share_their_trie(tokenizer: Tokenizer) -> None:
    finder = LabelTokens(tokenizer, LABELS, " ")
    prompts = [f"Sentence number {i} of some length.\nIts topic in one word is:" for i in range(20)]
    found = list(finder.after(prompts, tokenizer.encode_batch(prompts)))
    assert len({id(question.trie) for question in found}) == 1
    for prompt, question in zip(prompts, found, strict=True):
        assert (question.anchor, list(question.trie.paths)) == from_whole_prompt(tokenizer, prompt)


def test_all_ends_are_tokenised_in_two_calls_and_known_ones_in_none(tokenizer: Tokenizer) -> None:
    """One end after another would take longer than a GPU takes for the prompts."""
    counting = Counting(tokenizer)
    finder = LabelTokens(counting, LABELS, " ")
    prompts = [f"A sentence of some length that is about subject {i} is:" for i in range(10, 40)]
    ids = tokenizer.encode_batch(prompts)
    found = list(finder.after(prompts, ids))
    assert counting.calls == 2
    assert list(finder.after(prompts[::-1], ids[::-1])) == found[::-1]
    assert counting.calls == 2
    for prompt, question in zip(prompts, found, strict=True):
        assert (question.anchor, list(question.trie.paths)) == from_whole_prompt(tokenizer, prompt)


def test_many_labels_are_tokenised_a_few_ends_at_a_time(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library takes 2 KB for each text: of all at once, gigabytes."""
    monkeypatch.setattr(label_tokens, "_TOGETHER", 5 * len(LABELS))
    counting = Counting(tokenizer)
    prompts = [f"A sentence of some length that is about subject{i}:" for i in range(10, 40)]
    ids = tokenizer.encode_batch(prompts)
    found = list(LabelTokens(counting, LABELS, " ").after(prompts, ids))
    assert counting.most == 5 * len(LABELS)
    assert found == list(LabelTokens(tokenizer, LABELS, " ").after(prompts, ids))


def test_a_trailing_space_moves_the_labels_before_it(tokenizer: Tokenizer) -> None:
    prompt = "The topic of this sentence about many things is: "
    ids = tokenizer.encode(prompt)
    finder = LabelTokens(tokenizer, ["finance"], " ")
    [found] = finder.after([prompt], [ids])
    assert found.anchor == len(ids) - 1
    stripped = prompt.rstrip()
    [other] = finder.after([stripped], [tokenizer.encode(stripped)])
    assert found.trie.paths == other.trie.paths
