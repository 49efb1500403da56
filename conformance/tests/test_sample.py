"""The part of the self-test that runs by default: some checks, each with a faulty backend."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from core_cli.app import build
from core_conformance.checking.check import all_checks
from core_conformance.proof import sample
from core_conformance.proof.record import Kills
from core_conformance.proof.registry import Saboteur
from core_conformance.reference import Reference

QUICK = "identity.name"


def conformance(*arguments: str) -> Result:
    """``infer-cli conformance`` with the checks and faulty backends of the suite itself."""
    return CliRunner().invoke(build(), ["conformance", *arguments])


def test_a_sample_ends_in_time_and_tries_one_check_at_least() -> None:
    tried: list[str] = []
    result = sample.run([*all_checks().values()], seed=3, seconds=0.0, progress=tried.append)
    assert (result.tried, len(tried), result.problems) == (1, 1, ())
    assert f"passes 1 checks of {len(all_checks())}, drawn with seed 3, and faulty" in str(result)
    again = sample.run([*all_checks().values()], seed=3, seconds=0.0, progress=tried.append)
    assert again.tried == 1
    assert tried[0] == tried[1]


def test_a_check_that_cannot_tell_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    check = all_checks()[QUICK]
    harmless = Saboteur("harmless", "nothing", Reference)
    monkeypatch.setattr(sample, "all_saboteurs", lambda: {"harmless": harmless})
    monkeypatch.setattr(sample, "expected", lambda broken: Kills(frozenset({QUICK})))
    (problem,) = sample.run([check]).problems
    assert problem == f"{QUICK}: passes harmless (nothing)"

    monkeypatch.setattr(sample, "all_saboteurs", dict)
    result = sample.run([check])
    assert result.problems == (f"no faulty backend fails {QUICK}",)
    assert "not sound, 1 problems" in str(result)


def test_a_check_that_fails_the_reference_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reference, "name", "")
    check = all_checks()[QUICK]
    assert any("a sound backend fails" in problem for problem in sample.run([check]).problems)


def test_the_command_samples_the_selected_checks() -> None:
    done = conformance("--selftest", "-k", "identity.*", "--seed", "1")
    count = sum(id.startswith("identity.") for id in all_checks())
    assert done.exit_code == 0
    assert f"passes {count} checks, and faulty backends fail each" in done.stdout

    done = conformance("--selftest", "--all", "-k", QUICK)
    assert done.exit_code == 0
    assert done.stdout.startswith("No problem found: the reference passes 1 checks")
    assert done.stderr == f"{QUICK}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--selftest", "reference"), "tests the suite itself"),
        (("--selftest", "--certify", "--badge", "b.svg"), "Remove --certify, --badge"),
        (("--selftest", "-O", "a=1", "--json"), "Remove --option, --json"),
        (("--selftest", "--compare", __file__, __file__), "Remove --compare"),
        (("--compare", __file__, __file__, "-k", QUICK, "--all"), "Remove --check, --all"),
        (("reference", "--all"), "--all is for --selftest"),
        (("--selftest", "-k", "identety.name"), "Did you mean 'identity.name'?"),
    ],
)
def test_what_does_not_belong_together(arguments: tuple[str, ...], words: str) -> None:
    done = conformance(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
