"""The suite bites: each saboteur fails exactly the checks that it must, and each check has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core.protocols import Capability
from core_conformance.checking.check import all_checks
from core_conformance.proof import null_backend, record, selftest
from core_conformance.proof.kills import main, observed, side_by_side
from core_conformance.proof.record import Kills
from core_conformance.proof.registry import Saboteur, all_saboteurs, saboteur
from core_conformance.reference import Reference, write_model

if TYPE_CHECKING:
    from conformance.tests.conftest import Command

pytestmark = pytest.mark.load  # a busy machine can make it fail

Verdict = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A reference model."""
    return str(write_model(tmp_path_factory.mktemp("models") / "reference"))


@pytest.fixture(scope="module")
def verdict(request: pytest.FixtureRequest, path: str) -> Iterator[Verdict]:
    """How a saboteur differs from what it is to fail: all that were asked for run side by side."""
    wanted = [
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.originalname == "test_a_saboteur_fails_what_it_must_and_nothing_else"
    ]
    with side_by_side(partial(selftest.exactly, path=path), wanted) as futures:
        yield lambda name: futures[name].result()


@pytest.mark.long  # the tests below ask the same of each part, and run side by side
def test_every_saboteur_fails_what_it_must() -> None:
    assert selftest.run().problems == ()


@pytest.mark.slow  # all checks on all saboteurs: minutes
@pytest.mark.parametrize("name", all_saboteurs())
def test_a_saboteur_fails_what_it_must_and_nothing_else(name: str, verdict: Verdict) -> None:
    assert verdict(name) == []


def test_no_check_is_without_a_saboteur() -> None:
    assert selftest.without_saboteur() == []


def test_there_are_at_least_fifty_checks() -> None:
    assert len(all_checks()) >= 50


@pytest.mark.parametrize("capability", Capability)
def test_every_capability_is_refused_somewhere(path: str, capability: Capability) -> None:
    assert selftest.refusing(capability, path) == []


def test_the_empty_backend_passes_only_what_emptiness_keeps(path: str) -> None:
    assert selftest.emptiness(path) == []
    assert set(all_checks()) >= null_backend.PASSES


# --------------------------------------------------------------------------- the self-test itself


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes these the only kills that are recorded, by the saboteur's name."""

    def only(**kills: Kills) -> None:
        for module in (record, selftest):
            monkeypatch.setattr(module, "recorded", lambda: kills)

    return only


def kills(*always: str, sometimes: tuple[str, ...] = ()) -> Kills:
    return Kills(frozenset(always), frozenset(sometimes))


HARMLESS = Saboteur("harmless", "nothing", Reference)


class Nameless(Reference):
    """A backend without a name."""

    name = ""


NAMELESS = Saboteur("nameless", "no name", Nameless)


def test_a_saboteur_that_survives_is_reported(path: str, records: Callable[..., None]) -> None:
    records(harmless=kills("identity.name"))
    assert selftest.survivors(HARMLESS, path) == ["identity.name: passes harmless, unexpected"]


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes these the failures that one run after the other gives."""

    def only(*failures: dict[str, str]) -> None:
        runs = iter(failures)
        monkeypatch.setattr(selftest, "failures", lambda *arguments: next(runs))

    return only


def test_a_kill_that_was_not_recorded_is_reported(
    path: str, records: Callable[..., None], results: Callable[..., None]
) -> None:
    records(nameless=kills("identity.name"))
    failures = {"identity.name": "no name", "identity.registered": "nor there"}
    results(failures, failures, failures)
    (line,) = selftest.kill_matrix(NAMELESS, path)
    assert line == "identity.registered: fails nameless, unexpected: nor there"


def test_what_fails_sometimes_may_fail_or_pass(
    path: str, records: Callable[..., None], results: Callable[..., None]
) -> None:
    records(harmless=kills("batch.order", sometimes=("chat.empty", "chat.final-message")))
    results({"batch.order": "", "chat.empty": ""})
    assert selftest.kill_matrix(HARMLESS, path) == []


def test_what_differs_once_is_asked_again(
    path: str, records: Callable[..., None], results: Callable[..., None]
) -> None:
    records(harmless=kills("batch.order"))
    results({"chat.empty": "by chance"}, {"batch.order": "as ever"})
    assert selftest.kill_matrix(HARMLESS, path) == []


def test_what_is_wrong_with_the_record_is_reported(
    monkeypatch: pytest.MonkeyPatch, records: Callable[..., None]
) -> None:
    records(harmless=kills("identity.name", "no.such"), gone=kills("identity.protocol"))
    few = {"harmless": HARMLESS, "nameless": NAMELESS}
    for module in (record, selftest):
        monkeypatch.setattr(module, "all_saboteurs", lambda: few)
    lines = selftest.without_saboteur()
    assert "saboteur nameless fails no check" in lines
    assert "harmless fails no.such, which is no check" in lines
    assert "gone is recorded, and is neither saboteur nor model" in lines
    assert "no saboteur fails identity.protocol" in lines
    assert len(lines) == len(all_checks()) - 1 + 3


def test_the_record_is_as_the_command_writes_it() -> None:
    text = record.FILE.read_text("utf-8")
    assert record.written(record.known(record.parsed(text))) == text


def test_another_line_in_the_record_is_refused() -> None:
    with pytest.raises(ValueError, match="write the file again"):
        record.parsed("nameless identity.name often\n")


def test_what_is_recorded_after_a_few_runs() -> None:
    before = kills("a.one", "a.two", "a.three", sometimes=("a.four", "a.five"))
    seen = kills("a.one", "a.four", "a.six", sometimes=("a.two",))
    asked = {"a.one", "a.two", "a.four", "a.five", "a.six"}
    now = before.updated(seen, asked)
    assert now == kills("a.one", "a.three", "a.six", sometimes=("a.two", "a.four", "a.five"))


def test_of_a_poor_model_what_is_not_testable_is_recorded(path: str) -> None:
    kills = observed("plain-template", path, {"chat.special-text", "chat.system"})
    assert "chat.special-text" in kills.always
    assert "chat.system" not in kills.always


def test_the_command_records_what_a_saboteur_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kills.txt"
    file.write_text(record.written({"gone": kills("identity.name")}), encoding="utf-8")
    monkeypatch.setattr(record, "FILE", file)
    asked = ["name-with-a-blank", "--check", "identity.name", "--runs", "1", "--jobs", "1"]
    assert main(asked) == 1
    assert "+name-with-a-blank identity.name\n" in capsys.readouterr().out
    assert main([*asked, "--write"]) == 0
    assert "name-with-a-blank identity.name\n" in file.read_text("utf-8")


def test_a_refusal_leg_is_no_saboteur_of_its_checks() -> None:
    legs = {s.name for s in all_saboteurs().values() if s.undeclared is not None}
    assert "undeclared-chat" in legs
    chat = all_saboteurs()["undeclared-chat"]
    assert "undeclared-chat" not in record.recorded()
    needing = {id for id, c in all_checks().items() if c.needs[:1] == ("chat",)}
    assert record.expected(chat).always >= needing


def test_the_summary_says_what_is_wrong() -> None:
    good = selftest.Summary(70, 80, (), 12.3)
    assert good.sound
    assert "all 70 checks" in str(good)
    bad = selftest.Summary(70, 80, ("stop.in-token: passes saboteur x",), 12.3)
    assert not bad.sound
    assert "stop.in-token: passes saboteur x" in str(bad)


def test_the_command_says_what_the_self_test_found(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[tuple[str, Callable[[str], list[str]]]] = [("the reference", lambda path: [])]
    monkeypatch.setattr(selftest, "_parts", lambda: iter(parts))
    sound = command("--selftest", "--all")
    assert sound.code == 0
    assert sound.out.startswith("The suite is sound: ")
    assert sound.err == "the reference\n"

    parts.append(("saboteur z", lambda path: ["x.y: passes saboteur z"]))
    unsound = command("--selftest", "--all")
    assert unsound.code == 1
    assert unsound.out == "The suite is not sound, 1 problems:\n  x.y: passes saboteur z\n"


def test_two_saboteurs_of_one_name_are_refused() -> None:
    name = next(iter(all_saboteurs()))
    with pytest.raises(ValueError, match=name):
        saboteur(name, "again")(Reference)
    with pytest.raises(TypeError, match="not a part"):
        saboteur("odd", "nothing")(Path)
