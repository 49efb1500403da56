"""Verdicts, and known failures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_conformance.running.known import UsageError, flat, judged, read, validated
from core_conformance.running.result import Result, Status, verdict_of

P, F, K, X = Status.PASSED, Status.FAILED, Status.KNOWN, Status.FIXED
C, T, N = Status.CRASHED, Status.TIMEOUT, Status.NOT_RUN
U = Status.NOT_TESTABLE


@pytest.mark.parametrize(
    ("statuses", "text"),
    [
        ([P, P], "conformant"),
        ([P, K], "conformant with 1 known failure"),
        ([K, K], "conformant with 2 known failures"),
        ([P, F], "not conformant (1 failed)"),
        ([C, X], "not conformant (2 failed)"),
        ([F, K], "not conformant (1 failed)"),
        ([P, N], "incomplete (1 of 2 ran)"),
        ([P, T], "incomplete (1 of 2 ran); did not end: b"),
        ([K, N], "incomplete (1 of 2 ran)"),
        ([F, N], "not conformant (1 failed, 1 of 2 ran)"),
        ([T, F], "not conformant (1 failed, 1 of 2 ran); did not end: a"),
        ([P, U], "incomplete (1 of 2 ran, 1 not testable with this model)"),
        ([F, U], "not conformant (1 failed, 1 of 2 ran, 1 not testable with this model)"),
        ([N, U], "incomplete (0 of 2 ran, 1 not testable with this model)"),
        ([], "incomplete (0 of 0 ran)"),
    ],
)
def test_the_words_of_a_verdict(statuses: list[Status], text: str) -> None:
    results = {id: Result(id, status) for id, status in zip("ab", statuses, strict=False)}
    assert verdict_of(list(results), results).text == text


@given(st.lists(st.sampled_from(Status), min_size=1, max_size=6), st.integers(0, 3))
def test_only_a_whole_and_spotless_run_is_certifiable(statuses: list[Status], more: int) -> None:
    results = {str(number): Result(str(number), status) for number, status in enumerate(statuses)}
    ids = [str(number) for number in range(len(statuses) + more)]
    assert verdict_of(ids, results).certifiable == (not more and set(statuses) == {P})


def test_refusals_alone_are_nothing_to_certify() -> None:
    verdict = verdict_of(["a"], {"a": Result("a", P, refused="generate")}, offers=False)
    assert verdict.text.startswith("incomplete (it offers none of generate, chat, classify, ")
    assert not verdict.certifiable
    failed = verdict_of(["a"], {"a": Result("a", F)}, offers=False)
    assert failed.text == "not conformant (1 failed)"


def test_results_of_checks_that_do_not_apply_count_for_nothing() -> None:
    assert verdict_of(["a"], {"a": Result("a", P), "b": Result("b", F)}).text == "conformant"


def test_ids_without_quotes_are_one_level() -> None:
    table = {"a.b": "one, link", "c": {"d": "two, link", "e": {"f": "three, link"}}}
    assert flat(table, "here") == {"a.b": "one, link", "c.d": "two, link", "c.e.f": "three, link"}


@pytest.mark.parametrize("reason", ["", " \n", 1, None, ["x"]])
def test_a_reason_is_words(reason: object) -> None:
    with pytest.raises(UsageError, match=r"here: the known failure 'a\.b' has no reason"):
        flat({"a": {"b": reason}}, "here")


def test_a_file_of_known_failures_is_read_within_limits(tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    file.write_text('\ufeffstop.leaks = "why, link"\n["a.b"]\nc = "other"\n', "utf-8")
    assert read(file) == {"stop.leaks": "why, link", "a.b.c": "other"}
    for text, words in (
        ("a = ", "it is not TOML"),
        ("a = " + "9" * 5_000, "it has a number with too many digits"),
        ("a." * 20_000 + "b = 'x'", "it has a key of more than 16 parts"),
        ("a = " + "{b = " * 99 + "1" + "}" * 99, "it is nested more than 64 levels deep"),
        ("a = [" + "[], " * 2_000 + "]", "the known failure 'a' has no reason"),
        (" " * 2**22 + "\n", "it is larger than"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=words):
            read(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UsageError, match="it is a pipe or a device"):
        read(file)


def test_an_unknown_id_is_refused_with_the_nearest() -> None:
    assert validated({"stop.leaks": "why"}, ["stop.leaks"]) == {"stop.leaks": "why"}
    with pytest.raises(
        UsageError, match=r"Unknown check 'stop\.laeks'.*Did you mean 'stop\.leaks'"
    ):
        validated({"stop.laeks": "why"}, ["stop.leaks"])


@pytest.mark.parametrize(
    ("was", "becomes"),
    [(P, X), (F, K), (C, K), (T, K), (N, N), (U, U)],
    ids=lambda status: status.name,
)
def test_a_known_failure_is_strict(was: Status, becomes: Status) -> None:
    result = judged(Result("a", was, "seen"), {"a": "why, link"})
    assert result.status is becomes
    if becomes is K:
        assert result.reason == "why, link [seen]"
    assert judged(Result("b", was, "seen"), {"a": "why, link"}).status is was
