"""Some of the checks: by id, area and pattern; what is said of them, quietly and as a page."""

from __future__ import annotations

import html
import json
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core_conformance.checking.check import Check
from core_conformance.running.chosen import chosen
from core_conformance.running.known import UsageError

if TYPE_CHECKING:
    from conformance.tests.conftest import Command

IDS = ("batch.order", "stop.seed", "stop.tokens", "sampling.seed")
CHECKS = [Check(id, "It MUST.", (), 1, lambda _: None) for id in IDS]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ((), IDS),
        (("stop.tokens",), ("stop.tokens",)),
        (("stop",), ("stop.seed", "stop.tokens")),
        (("stop.",), ("stop.seed", "stop.tokens")),
        (("*.seed", "batch"), ("batch.order", "stop.seed", "sampling.seed")),
        (("stop.tokens", "stop.tokens"), ("stop.tokens",)),
    ],
)
def test_what_an_author_types(wanted: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert tuple(check.id for check in chosen(CHECKS, wanted)) == found


@pytest.mark.parametrize("words", ["stop.token", "sto", "", "stop.seed "])
def test_what_means_no_check_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match="No check"):
        chosen(CHECKS, ["batch", words])


def test_some_checks_are_no_verdict(command: Command) -> None:
    done = command("toy", "-m", "model", "-k", "toy.first", "--check", "*.third")
    assert done.code == 0
    assert done.statuses == {"toy.first": "passed", "toy.third": "passed"}
    assert "incomplete (2 of 4 checks were selected); 2 of 2 chosen checks passed" in done.err


def test_a_chosen_check_that_fails_is_a_failure(command: Command) -> None:
    done = command("toy_wrong", "-m", "model", "-k", "toy.second")
    assert done.code == 1
    assert "toy_wrong: not conformant (1 failed)" in done.err


def test_of_chosen_checks_certify_asks_the_same_and_certifies_nothing(
    command: Command, tmp_path: Path
) -> None:
    passed = command("toy", "-m", "model", "-k", "toy.first", "--certify", "--report", "r.json")
    assert passed.code == 0
    assert "toy: incomplete (1 of 4 checks were selected); 1 of 1 chosen" in passed.err
    assert "certified" not in passed.err
    assert json.loads((tmp_path / "r.json").read_bytes())["certified"] is False

    (tmp_path / "known.toml").write_text('toy.second = "it mumbles, tracker/1"')
    excused = ("toy_wrong", "-m", "model", "-k", "toy.second", "--known", "known.toml")
    assert command(*excused).code == 0
    assert command(*excused, "--certify").code == 1


def test_the_line_to_run_it_again_can_be_pasted(command: Command) -> None:
    failed = command("toy_wrong", "-m", "model", "-O", "refuse=0")
    (line,) = (line for line in failed.err.splitlines() if "Rerun: " in line)
    words = shlex.split(line.partition("Rerun: ")[2])
    assert words[:2] == ["infer-cli", "conformance"]
    again = command(*words[2:])
    assert again.statuses == {"toy.second": "failed"}


def test_quiet_shows_what_did_not_pass(command: Command) -> None:
    assert command("toy", "-m", "model", "-q").out == ""
    wrong = command("toy_wrong", "-m", "model", "--quiet")
    assert [line.split("\t")[:2] for line in wrong.out.splitlines()] == [["toy.second", "failed"]]
    assert "not conformant (1 failed)" in wrong.err


class Rows(HTMLParser):
    """The ids of a page's rows, and all of its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [str(value) for name, value in attrs if (tag, name) == ("tr", "id")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_tells_all_and_what_a_backend_says_is_text(
    command: Command, tmp_path: Path
) -> None:
    command("toy_markup", "-m", "model", "--html", "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    shown = Rows(page)
    assert shown.ids == ["toy.first", "toy.labels", "toy.second", "toy.third"]
    assert "<script>alert(1)</script>" in shown.text
    assert "<script>alert" not in page
    assert html.escape("<script>alert(1)</script>", quote=False) in page


def test_a_page_that_cannot_be_written_is_said_before_the_run(command: Command) -> None:
    done = command("toy", "-m", "model", "--html", "nowhere/report.html")
    assert done.code == 2
    assert done.out == ""
    assert "nowhere/report.html cannot be written" in done.err
