"""Values kept for a second question have a size in bytes, whatever is asked."""

from __future__ import annotations

import sys
import threading

from core_wires import reading
from core_wires.byte_cache import ByteCache, bytes_of
from core_wires.questions import Choice, Option, Predicate


def test_the_values_used_longest_ago_go_first() -> None:
    size = bytes_of("a") + bytes_of(b"x" * 100)
    cache: ByteCache[str, bytes] = ByteCache(20 * size)
    for letter in "abcdefghijklmnopqrst":
        cache.put(letter, b"x" * 100)
    assert cache.get("a") == b"x" * 100
    cache.put("u", b"x" * 100)
    assert cache.get("b") is None
    assert cache.get("a") is not None
    assert cache.bytes == 20 * size


def test_what_is_put_twice_counts_once() -> None:
    cache: ByteCache[str, str] = ByteCache(1 << 16)
    for text in ("one", "two"):
        cache.put("key", text)
    assert cache.get("key") == "two"
    assert cache.bytes == bytes_of("key") + bytes_of("two")


def test_what_is_large_among_all_is_not_kept() -> None:
    cache: ByteCache[str, str] = ByteCache(16_000)
    cache.put("small", "x")
    cache.put("large", "x" * 2_000)
    assert cache.get("large") is None
    assert cache.get("small") == "x"


def test_bytes_are_those_of_all_that_a_value_holds() -> None:
    question = Choice("Which?", (Option("x" * 1_000), Option("y", "z" * 1_000)))
    texts = ["Which?", "x" * 1_000, "y", "z" * 1_000]
    assert bytes_of(question) > sum(map(sys.getsizeof, texts))
    assert bytes_of({"a": ["b" * 500]}) > 500


def test_threads_lose_no_count() -> None:
    cache: ByteCache[int, str] = ByteCache(1 << 16)

    def work(first: int) -> None:
        for number in range(first, first + 2_000):
            cache.put(number % 700, "x" * (number % 50))
            cache.get(number % 300)

    threads = [threading.Thread(target=work, args=(n * 1_000,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.bytes == sum(size for _, size in cache._values.values()) <= 1 << 16


def test_long_questions_are_put_and_not_kept() -> None:
    before = reading._WORDINGS.bytes
    for number in range(20):
        question = Predicate(f"{number} " + "word " * 400_000)
        assert reading.reading(question, "state").question_text.startswith(f"{number} word")
    assert reading._WORDINGS.bytes == before


def test_questions_that_differ_in_how_they_are_read_are_kept_apart() -> None:
    question = Choice("Which of these two?", (Option("red"), Option("green")))
    for _ in range(2):
        assert reading.reading(question, "s").labels == ("red", "green")
        assert set(reading.reading(question, "s", "letters").labels) == {"A", "B"}
        assert reading.reading(question, "s", "letters").how == "letters"
