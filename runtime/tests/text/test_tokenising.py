"""Tokenising can be stopped, whatever the size of the texts; nothing of what it gives changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from core.errors import GenerationCancelled, GenerationTimeout
from core.kit.base import never_stop
from core_runtime.text import tokenising
from core_runtime.text.tokenising import Tokenising

BLOCK = 10


class Letters:
    """One id a letter. ``meanwhile`` is called in each batch."""

    def __init__(self, meanwhile: Callable[[], object] = never_stop) -> None:
        self.batches: list[list[str]] = []
        self.threads: list[threading.Thread] = []
        self.meanwhile = meanwhile

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        self.batches.append(list(texts))
        self.threads.append(threading.current_thread())
        self.meanwhile()
        return [list(map(ord, text)) for text in texts]

    def last_cut(self, text: str) -> int:
        return 0

    def encode_continued(self, prompt: str, continuations: Sequence[str]) -> list[list[int]]:
        return self.encode_batch([prompt + continuation for continuation in continuations])

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenising, "_BLOCK", BLOCK)


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ([], []),
        ([0, 0], [[0, 0]]),
        ([10], [[10]]),
        ([4, 6, 1], [[4, 6], [1]]),
        ([11], [[11]]),
        ([3, 11, 3, 3], [[3], [11], [3, 3]]),
        ([11, 12], [[11], [12]]),
    ],
)
def test_texts_are_read_in_blocks(sizes: list[int], blocks: list[list[int]]) -> None:
    inner = Letters()
    texts = [chr(97 + index) * size for index, size in enumerate(sizes)]
    found = Tokenising(inner, never_stop).encode_batch(texts)
    assert found == [list(map(ord, text)) for text in texts]
    assert [[len(text) for text in batch] for batch in inner.batches] == blocks


def test_continuations_are_read_in_blocks() -> None:
    inner = Letters()
    found = Tokenising(inner, never_stop).encode_continued("abc", ["d", "ef", "g"])
    assert ["".join(map(chr, ids)) for ids in found] == ["abcd", "abcef", "abcg"]
    assert inner.batches == [["abcd", "abcef"], ["abcg"]]


def test_one_text_and_what_is_decoded_go_through() -> None:
    one = Tokenising(Letters(), never_stop)
    assert one.decode(one.encode("ab")) == "ab"


def test_the_check_is_asked_between_blocks_and_not_of_a_single_one() -> None:
    inner = Letters()

    def stop() -> None:
        raise GenerationCancelled

    Tokenising(inner, stop).encode_batch(["a", "b"])
    with pytest.raises(GenerationCancelled):
        Tokenising(inner, stop).encode_batch(["a" * 9, "b" * 9, "c"])
    assert inner.batches == [["a", "b"], ["a" * 9]]


@pytest.mark.parametrize("error", [GenerationTimeout(0.1), KeyboardInterrupt()])
def test_a_large_text_is_left_behind(error: BaseException) -> None:
    """It is read while this ends, on a thread that ends by itself."""
    begun, release = threading.Event(), threading.Event()

    def held() -> None:
        begun.set()
        assert release.wait(60)

    inner = Letters(held)

    def check() -> None:
        if begun.is_set():
            raise error

    try:
        with pytest.raises(type(error)):
            Tokenising(inner, check).encode("a" * (BLOCK + 1))
        (thread,) = inner.threads
        assert thread is not threading.current_thread()
        assert thread.is_alive()
    finally:
        release.set()
    thread.join(60)
    assert not thread.is_alive()
