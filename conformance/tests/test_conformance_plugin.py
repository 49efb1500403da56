"""The pytest plugin, in sessions of their own: what is collected, what counts, what it returns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SUITE = ("--pyargs", "core_conformance")
TOY = ("--core-backend", "toy", "--core-model", "model")
WRONG = ("--core-backend", "toy_wrong", "--core-model", "model")
ONE_LINE = """
from core_conformance.embed import conformance_tests

test_mine = conformance_tests("{}", model="model")
"""


@pytest.fixture(autouse=True)
def in_a_project(toys: Path, pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("model").touch()


def session(pytester: pytest.Pytester, *arguments: str, alone: bool = False) -> pytest.RunResult:
    """A session of pytest; ``alone`` in a process of its own, for what would harm this one."""
    run = pytester.runpytest_subprocess if alone else pytester.runpytest_inprocess
    return run("-p", "no:cacheprovider", *arguments)


def test_a_sound_backend(pytester: pytest.Pytester) -> None:
    done = session(pytester, *SUITE, *TOY, "-v")
    done.assert_outcomes(passed=4)
    done.stdout.fnmatch_lines(["*test_conformance[[]toy.second] PASSED*"])
    done.stdout.fnmatch_lines(["toy: conformant; 4 of 4 checks passed, 1 of them by refusing*"])
    assert done.ret == 0


def test_a_violation_is_told_in_words_alone(pytester: pytest.Pytester) -> None:
    done = session(pytester, *SUITE, *WRONG)
    done.assert_outcomes(passed=3, failed=1)
    done.stdout.fnmatch_lines(
        ["The second word MUST come back.", "failed: for the prompt 'second' came 'nonsense'*"]
    )
    done.stdout.fnmatch_lines(["toy_wrong: not conformant (1 failed)*"])
    done.stdout.no_fnmatch_line("*Traceback*")
    assert done.ret == 1


def test_an_error_of_the_backend_comes_with_its_traceback(pytester: pytest.Pytester) -> None:
    done = session(pytester, *SUITE, "--core-backend", "toy_raises", "--core-model", "model")
    done.assert_outcomes(passed=3, failed=1)
    done.stdout.fnmatch_lines(["failed: raised SystemExit: a stray exit*", "*in at_second"])


def test_without_conformance_tests_it_does_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH")  # the toys import the suite before pytest does
    pytester.makepyprojecttoml("[tool.core-conformance]\nbackend = 1\n[tool.other]\n")
    pytester.makepyfile(
        """
        import sys

        def test_own():
            assert "core_conformance.front.plugin" in sys.modules
            loaded = {name for name in sys.modules if name.startswith("core_conformance.")}
            assert loaded == {"core_conformance.front", "core_conformance.front.plugin"}
        """
    )
    done = session(pytester, "--strict-markers", "-W", "error", alone=True)
    done.assert_outcomes(passed=1)
    done.stdout.no_fnmatch_line("* conformance *")


def test_what_is_not_testable_is_skipped_and_not_certified(pytester: pytest.Pytester) -> None:
    small = ("--core-backend", "toy_small", "--core-model", "model")
    done = session(pytester, *SUITE, *small, "--core-certify", "-rs")
    done.assert_outcomes(passed=1, skipped=3)
    done.stdout.fnmatch_lines(["SKIPPED*not testable with this model: the model's context*"])
    done.stdout.fnmatch_lines(["toy_small: incomplete (1 of 4 ran, 3 not*", "not certified"])
    assert done.ret == 1
    assert session(pytester, *SUITE, *small, "--core-option", "context_len=128").ret == 0


def test_the_marker_is_registered_and_no_warning_is_raised(pytester: pytest.Pytester) -> None:
    session(pytester, *SUITE, *TOY, "--strict-markers", "-W", "error").assert_outcomes(passed=4)


def test_a_projects_own_file_pattern_does_not_hide_the_suite(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\npython_files = check_*.py\n")
    session(pytester, *SUITE, *TOY).assert_outcomes(passed=4)


def test_one_line_in_an_authors_own_file(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ONE_LINE.format("toy_wrong"))
    session(pytester).assert_outcomes(passed=3, failed=1)


def test_one_line_takes_known_failures(pytester: pytest.Pytester) -> None:
    line = ONE_LINE.format("toy_wrong").replace(
        ")\n", ', known_failures={"toy.second": "it mumbles, tracker/1"})\n'
    )
    pytester.makepyfile(line)
    done = session(pytester, "-rx")
    done.assert_outcomes(passed=3, xfailed=1)
    done.stdout.fnmatch_lines(["XFAIL *toy.second* it mumbles, tracker/1*"])


def test_two_backends_get_two_verdicts_and_no_common_report(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a=ONE_LINE.format("toy"), test_b=ONE_LINE.format("toy_wrong"))
    done = session(pytester)
    done.stdout.fnmatch_lines(["toy: conformant;*", "toy_wrong: not conformant*"])
    done = session(pytester, "--core-report", "r.json")
    assert done.ret == pytest.ExitCode.USAGE_ERROR


def test_the_table_of_a_project(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml(
        '[tool.core-conformance]\nbackend = "toy_wrong"\nmodel = "model"\n'
        '[tool.core-conformance.known-failures]\n"toy.second" = "it mumbles, tracker/1"\n'
    )
    done = session(pytester, *SUITE)
    done.assert_outcomes(passed=3, xfailed=1)
    done.stdout.fnmatch_lines(["toy_wrong: conformant with 1 known failure;*"])
    assert done.ret == 0
    session(pytester, *SUITE, *TOY).assert_outcomes(passed=4)  # another backend's are not its own


def test_a_known_failure_that_passes_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("known.toml").write_text('toy.first = "it mumbled, tracker/1"\n')
    done = session(pytester, *SUITE, *TOY, "--core-known", "known.toml")
    done.assert_outcomes(passed=3, failed=1)
    done.stdout.fnmatch_lines(["fixed: passes now: delete its line*"])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('toy.frist = "why"', "Unknown check 'toy.frist'*Did you mean 'toy.first'?*"),
        ('toy.first = " "', "'toy.first' has no reason*"),
        ("toy.first = 1", "'toy.first' has no reason*"),
        ("toy.first", "known.toml cannot be read*"),
    ],
)
def test_a_table_of_known_failures_that_says_nothing(
    pytester: pytest.Pytester, table: str, words: str
) -> None:
    pytester.path.joinpath("known.toml").write_text(table)
    done = session(pytester, *SUITE, *TOY, "--core-known", "known.toml")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: *{words}"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--core-backend", "toi", "--core-model", "model"), "Did you mean 'toy'?"),
        (("--core-backend", "toy"), "No model to check"),
        (("--core-backend", "toy", "--core-model", "nowhere"), "Model not found"),
        (("--core-model", "model"), "No backend to check"),
        ((*TOY, "--core-timeout", "-1"), "expected a finite number of seconds above 0"),
        ((*TOY, "--core-option", "x"), "is not K=V"),
    ],
)
def test_wrong_usage(pytester: pytest.Pytester, arguments: tuple[str, ...], words: str) -> None:
    done = session(pytester, *SUITE, *arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: *{words}*"])


def test_a_table_with_a_mistake_in_it(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml('[tool.core-conformance]\nbakend = "toy"\n')
    done = session(pytester, *SUITE)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: *tool.core-conformance*bakend*"])


def test_a_model_that_is_refused_fails_once(pytester: pytest.Pytester) -> None:
    done = session(pytester, *SUITE, "--core-backend", "toy_refuses", "--core-model", "model")
    done.assert_outcomes(failed=1, skipped=3)
    done.stdout.fnmatch_lines(["No code for this model. Take another."])
    done.stdout.fnmatch_lines(["toy_refuses: incomplete (0 of 4 ran);*does not load*"])


def test_after_a_hang_the_rest_runs(pytester: pytest.Pytester) -> None:
    hangs = ("--core-backend", "toy_hangs", "--core-model", "model", "--core-timeout", "3")
    done = session(pytester, *SUITE, *hangs, alone=True)
    done.assert_outcomes(passed=3, failed=1)
    done.stdout.fnmatch_lines(["*incomplete (3 of 4 ran); did not end: toy.second;*"])
    assert done.ret == 1


def test_isolated_a_crash_is_named_and_the_rest_runs(pytester: pytest.Pytester) -> None:
    dies = ("--core-backend", "toy_dies", "--core-model", "model", "--core-isolate")
    done = session(pytester, *SUITE, *dies)
    done.assert_outcomes(passed=3, failed=1)
    done.stdout.fnmatch_lines(["crashed: its process died of SIGSEGV", "*in at_second"])


def test_a_thread_left_behind_is_named_and_not_waited_for(pytester: pytest.Pytester) -> None:
    threads = ("--core-backend", "toy_threads", "--core-model", "model")
    done = session(pytester, *SUITE, *threads, alone=True)
    done.stdout.fnmatch_lines(["Threads left for which Python would wait at exit: stray"])
    assert done.ret == 0


def test_certify_a_whole_run(pytester: pytest.Pytester) -> None:
    files = ("--core-report", "r.json", "--core-badge", "b.json")
    done = session(pytester, *SUITE, *TOY, "--core-certify", *files)
    done.stdout.fnmatch_lines(["certified"])
    assert done.ret == 0
    assert json.loads(pytester.path.joinpath("r.json").read_text())["certified"] is True
    badge = json.loads(pytester.path.joinpath("b.json").read_text())
    assert badge["message"] == "3 checked, 1 refused"


@pytest.mark.parametrize(
    "arguments",
    [
        (*SUITE, *TOY, "-k", "first"),
        (*SUITE, *TOY, "--deselect", "::test_conformance[toy.first]", "-k", "not third"),
        ("--pyargs", "core_conformance::test_conformance[toy.first]", *TOY),
        (*SUITE, *TOY, "--collect-only"),
        ("test_own.py", *TOY),
    ],
    ids=["k", "deselect", "one", "collect", "none"],
)
def test_certify_fails_on_what_was_left_out(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_own="def test_own(): pass")
    done = session(pytester, *arguments, "--core-certify")
    done.stdout.fnmatch_lines(["*incomplete (*", "not certified"])
    assert done.ret == 1


@pytest.mark.parametrize("stop", ["-x", "--maxfail=1"])
def test_certify_fails_on_a_run_cut_short(pytester: pytest.Pytester, stop: str) -> None:
    done = session(pytester, *SUITE, *WRONG, "--core-certify", stop)
    done.stdout.fnmatch_lines(["toy_wrong: not conformant (1 failed, 3 of 4 ran)*"])
    assert done.ret != 0


@pytest.mark.parametrize("mark", ["skip", "xfail(run=False)"])
def test_certify_fails_on_what_a_conftest_silences(pytester: pytest.Pytester, mark: str) -> None:
    pytester.makeconftest(
        f"""
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                if "toy.first" in item.name:
                    item.add_marker(pytest.mark.{mark})
        """
    )
    pytester.makepyfile(ONE_LINE.format("toy"))
    done = session(pytester, "--core-certify")
    done.stdout.fnmatch_lines(["toy: incomplete (3 of 4 ran);*", "not certified"])
    assert done.ret == 1


def test_certify_sees_through_an_xfail_of_a_conftest(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.xfail)
        """
    )
    pytester.makepyfile(ONE_LINE.format("toy_wrong"))
    done = session(pytester, "--core-certify")
    done.stdout.fnmatch_lines(["toy_wrong: not conformant (1 failed)*", "not certified"])
    assert done.ret == 1


def test_certify_fails_on_a_known_failure(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("known.toml").write_text('toy.second = "it mumbles, tracker/1"\n')
    known = ("--core-known", "known.toml")
    assert session(pytester, *SUITE, *WRONG, *known).ret == 0
    assert session(pytester, *SUITE, *WRONG, *known, "--core-certify").ret == 1


def test_a_backend_without_the_suite_is_a_hint(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own(): pass")
    done = session(pytester, *TOY)
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["*add --pyargs core_conformance*"])
