"""The suite bites: each saboteur fails exactly the checks that it must, and each check has one."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core.protocols import Capability
from core_conformance.checking.check import all_checks
from core_conformance.proof import null_backend, selftest
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
    fresh = multiprocessing.get_context("spawn")  # threads of other tests are not forked along
    # Half of a run is waiting for what a sound backend would not do.
    workers = 2 * (os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=fresh) as pool:
        futures = {name: pool.submit(selftest.exactly, name, path) for name in wanted}
        yield lambda name: futures[name].result()
        pool.shutdown(cancel_futures=True)  # a run may end before it asks for all of them


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


def broken(kills: set[str], undeclared: Capability | None = None) -> Saboteur:
    """A saboteur that breaks nothing."""
    return Saboteur("harmless", "nothing", frozenset(kills), Reference, undeclared)


def test_a_saboteur_that_survives_is_reported(path: str) -> None:
    assert selftest.survivors(broken({"identity.name"}), path) == [
        "identity.name: passes saboteur harmless"
    ]
    assert selftest.kill_matrix(broken({"identity.name"}), path) == [
        "identity.name: passes harmless, unexpected"
    ]


def test_a_kill_that_was_not_announced_is_reported(path: str) -> None:
    class Nameless(Reference):
        name = ""

    announced = Saboteur("nameless", "no name", frozenset({"identity.name"}), Nameless)
    (line,) = selftest.kill_matrix(announced, path)
    assert line.startswith("identity.registered: fails nameless, unexpected: ")


def test_a_saboteur_that_no_check_looks_at_is_reported(path: str) -> None:
    assert selftest.survivors(broken(set()), path) == [
        "saboteur harmless breaks what no check looks at"
    ]


def test_a_check_without_a_saboteur_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"one": broken({"identity.name", "no.such"})}
    monkeypatch.setattr(selftest, "all_saboteurs", lambda: few)
    lines = selftest.without_saboteur()
    assert "a saboteur must fail no.such, which is not a check" in lines
    assert "no saboteur fails identity.protocol" in lines
    assert len(lines) == len(all_checks())


def test_a_refusal_leg_is_no_saboteur_of_its_checks() -> None:
    legs = {s.name for s in all_saboteurs().values() if s.undeclared is not None}
    assert "undeclared-chat" in legs
    chat = all_saboteurs()["undeclared-chat"]
    assert chat.kills == frozenset()
    assert chat.expected() >= {id for id, c in all_checks().items() if c.needs[:1] == ("chat",)}


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
        saboteur(name, "again", kills={"identity.name"})(Reference)
    with pytest.raises(ValueError, match="kills no check"):
        saboteur("toothless", "nothing")(Reference)
    with pytest.raises(TypeError, match="not a part"):
        saboteur("odd", "nothing", kills={"identity.name"})(Path)
