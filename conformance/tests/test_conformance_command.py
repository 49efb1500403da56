"""``infer-cli conformance``: exit codes, what goes to which stream, and backends that misbehave."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conformance.tests.conftest import Command

pytestmark = pytest.mark.load  # a busy machine can make it fail

MAIN = "from core_cli import main; main()"
ALL = {"toy.first", "toy.labels", "toy.second", "toy.third"}
ISOLATION = pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["here", "isolated"])


def but_second(status: str) -> dict[str, str]:
    return {**dict.fromkeys(ALL, "passed"), "toy.second": status}


@ISOLATION
def test_a_sound_backend_is_conformant(command: Command, isolate: tuple[str, ...]) -> None:
    done = command("toy", "-m", "model", "--certify", *isolate)
    assert done.code == 0
    assert done.statuses == but_second("passed")
    assert "toy.labels\tpassed" in done.out
    assert "not declared, and refused: classify" in done.out
    assert "toy: conformant; 4 of 4 checks passed, 1 of them by refusing" in done.err
    assert "(certified)" in done.err


@ISOLATION
def test_a_violation_is_told_in_words(command: Command, isolate: tuple[str, ...]) -> None:
    done = command("toy_wrong", "-m", "model", *isolate)
    assert done.code == 1
    assert done.statuses == but_second("failed")
    assert "The second word MUST come back." in done.err
    assert "for the prompt 'second' came 'nonsense'; say what you are told" in done.err
    assert "toy_wrong: not conformant (1 failed)" in done.err


@ISOLATION
def test_a_stray_exit_is_a_failure_with_its_line(
    command: Command, isolate: tuple[str, ...]
) -> None:
    done = command("toy_raises", "-m", "model", *isolate)
    assert done.statuses == but_second("failed")
    assert "raised SystemExit: a stray exit (" in done.err
    assert "toy_backends.py:" in done.err


@ISOLATION
def test_an_answer_to_what_is_not_declared_is_a_failure(
    command: Command, isolate: tuple[str, ...]
) -> None:
    done = command("toy_answers", "-m", "model", *isolate)
    assert done.code == 1
    assert done.statuses == {**dict.fromkeys(ALL, "passed"), "toy.labels": "failed"}
    assert "classify is not declared, and its call was not refused" in done.err


def test_after_a_hang_the_rest_runs_in_other_processes(command: Command) -> None:
    done = command("toy_hangs", "-m", "model", "--timeout", "3", alone=True)
    assert done.code == 1
    assert done.statuses == but_second("timeout")
    assert "incomplete (3 of 4 ran); did not end: toy.second" in done.err


def test_isolated_the_rest_runs_after_a_hang(command: Command) -> None:
    done = command("toy_hangs", "-m", "model", "--timeout", "5", "--isolate")
    assert done.code == 1
    assert done.statuses == but_second("timeout")
    assert "incomplete (3 of 4 ran); did not end: toy.second" in done.err
    assert "in at_second" in done.err  # where it hangs


@pytest.mark.usefixtures("command")
def test_ctrl_c_ends_a_hang() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, "conformance", "toy_hangs", "-m", "model"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        while process.stderr.readline() != b"hanging\n":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert out.splitlines()[-1] == b"toy.second\t"  # begun, and nothing after it


def test_a_dead_process_leaves_what_was_found_and_the_name_of_the_check(command: Command) -> None:
    died = command("toy_dies", "-m", "model", alone=True)
    assert died.code == -signal.SIGSEGV
    assert [line.split("\t")[:2] for line in died.out.splitlines()] == [
        ["CHECK", "STATUS"],
        ["toy.first", "passed"],
        ["toy.labels", "passed"],
        ["toy.second", ""],
    ]
    assert "the last check named on stdout is the cause; --isolate" in died.err
    assert "Fatal Python error: Segmentation fault" in died.err
    died = command("toy_dies", "-m", "model", "--json", alone=True)
    assert died.out == ""
    lines = died.err.partition("Fatal Python error")[0].split()
    assert lines[-3:] == ["toy.first", "toy.labels", "toy.second"]


@pytest.mark.parametrize(
    ("backend", "how"),
    [
        ("toy_dies", "its process died of SIGSEGV"),
        ("toy_exits", "ended its process with exit status 0 before the check was over"),
    ],
)
def test_isolated_a_dead_process_is_named_and_the_rest_runs(
    command: Command, backend: str, how: str
) -> None:
    done = command(backend, "-m", "model", "--isolate")
    assert done.code == 1
    assert done.statuses == but_second("crashed")
    assert how in done.err
    assert "not conformant (1 failed)" in done.err


@ISOLATION
def test_what_a_backend_prints_does_not_reach_the_report(
    command: Command, isolate: tuple[str, ...]
) -> None:
    done = command("toy_prints", "-m", "model", "--json", *isolate, alone=True)
    assert done.code == 0
    assert done.report["verdict"] == "conformant"


def test_a_thread_left_behind_is_named_and_not_waited_for(command: Command) -> None:
    done = command("toy_threads", "-m", "model", alone=True)  # it would wait for ever
    assert done.code == 0
    assert "threads still running, which Python would wait for: stray" in done.err


def test_isolated_a_thread_left_behind_ends_with_its_process(command: Command) -> None:
    done = command("toy_threads", "-m", "model", "--isolate", "--timeout", "5")
    assert done.statuses == but_second("passed")


def test_isolated_what_a_check_started_ends_with_it(command: Command, tmp_path: Path) -> None:
    done = command("toy_spawns", "-m", "model", "--isolate")
    assert done.statuses == but_second("passed")
    process = Path("/proc", (tmp_path / "model").read_text(), "stat")
    wait_for(lambda: not process.exists() or " Z " in process.read_text())


def test_isolated_processes_look_for_modules_where_this_one_does(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH")  # what is left is this process's own sys.path
    assert command("toy", "-m", "model", "--isolate").statuses == but_second("passed")


@ISOLATION
def test_an_unknown_backend(command: Command, isolate: tuple[str, ...]) -> None:
    done = command("toi", "-m", "model", *isolate)
    assert done.code == 4
    assert "Did you mean 'toy'?" in done.err
    assert done.out == ""


@ISOLATION
def test_a_backend_that_cannot_run_here(command: Command, isolate: tuple[str, ...]) -> None:
    done = command("toy_absent", "-m", "model", *isolate)
    assert done.code == 4
    assert "the moon is not full" in done.err


@ISOLATION
def test_no_such_model(command: Command, isolate: tuple[str, ...]) -> None:
    done = command("toy", "-m", "nowhere", *isolate)
    assert done.code == 3
    assert "Model not found" in done.err


@ISOLATION
@pytest.mark.parametrize(
    ("backend", "words"),
    [("toy_refuses", "No code for this model."), ("toy_breaks", "so nothing runs: KeyError")],
)
def test_a_model_that_is_refused(
    command: Command, isolate: tuple[str, ...], backend: str, words: str
) -> None:
    done = command(backend, "-m", "model", *isolate)
    assert done.code == 1
    assert words in done.err
    assert done.out == ""


def test_a_load_that_kills_or_hangs(command: Command) -> None:
    died = command("toy_dies_loading", "-m", "model", "--isolate")
    assert died.code == 1
    assert "so nothing runs: its process died of SIGSEGV" in died.err
    for isolate in ((), ("--isolate",)):
        hung = command("toy_hangs_loading", "-m", "model", "--timeout", "1.5", *isolate, alone=True)
        assert hung.code == 1
        assert "did not end within 1.5 s" in hung.err


def test_options_reach_every_load(command: Command) -> None:
    for isolate in ((), ("--isolate",)):
        done = command("toy", "-m", "model", "-O", "refuse=1", *isolate)
        assert "Asked to refuse." in done.err


@ISOLATION
def test_what_the_model_lacks_is_told_once_and_held_against_nobody(
    command: Command, isolate: tuple[str, ...]
) -> None:
    done = command("toy_small", "-m", "model", "--certify", *isolate)
    assert done.code == 1
    assert done.statuses == dict.fromkeys(ALL, "not testable") | {"toy.labels": "passed"}
    assert "NOT TESTABLE with this model: toy.first, toy.second, toy.third\n" in done.err
    assert done.err.count("The model's context holds 127 tokens, but the prompts of the suite") == 1
    assert "toy_small: incomplete (1 of 4 ran, 3 not testable with this model); 1 of 4" in done.err
    assert "certified" not in done.err


def test_options_of_core_reach_the_load(command: Command) -> None:
    done = command("toy_small", "-m", "model", "-O", "context_len=128")
    assert done.code == 0
    assert "toy_small: conformant" in done.err
    wrong = command("toy_small", "-m", "model", "-O", "context_len=big")
    assert "context_len='big' is not valid" in wrong.err


def test_a_backend_that_offers_nothing_is_not_certified(command: Command) -> None:
    done = command("toy_nothing", "-m", "model", "--certify")
    assert done.code == 1
    assert set(done.statuses.values()) == {"passed"}
    assert "toy_nothing: incomplete (it offers none of generate, chat" in done.err


def test_known_failures_are_excused_unless_certifying(command: Command, tmp_path: Path) -> None:
    known = 'toy.second = "it mumbles, tracker/1"\r\n'
    (tmp_path / "known.toml").write_text(known, encoding="utf-8-sig")  # as an editor may save it
    done = command("toy_wrong", "-m", "model", "--known", "known.toml")
    assert done.code == 0
    assert done.statuses == but_second("known failure")
    assert "it mumbles, tracker/1 [for the prompt" in done.out
    assert "conformant with 1 known failure" in done.err
    assert command("toy_wrong", "-m", "model", "--known", "known.toml", "--certify").code == 1


def test_a_known_failure_that_passes_is_an_error(command: Command, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text('"toy.second" = "it mumbles, tracker/1"\n')
    done = command("toy", "-m", "model", "--known", "known.toml")
    assert done.code == 1
    assert done.statuses == but_second("fixed")
    assert "delete its line" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("toy",), "No model to check"),
        (("-m", "model"), "No backend to check"),
        (("toy", "-m", "model", "-O", "nonsense"), "is not K=V"),
        (("toy", "-m", "model", "--timeout", "0"), "expected a finite number of seconds above 0"),
        (("toy", "-m", "model", "--timeout", "nan"), "expected a finite number of seconds above 0"),
        (("toy", "-m", "model", "--known", "none.toml"), "cannot be read"),
        (("toy", "-m", "model", "--report", "no/where.json"), "cannot be written"),
    ],
)
def test_wrong_usage(command: Command, arguments: tuple[str, ...], words: str) -> None:
    done = command(*arguments)
    assert done.code == 2
    assert words in " ".join(done.err.split())
    assert done.out == ""


def test_the_table_of_a_project_and_what_wins_over_it(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.core-conformance]\nbackend = "toy_wrong"\nmodel = "model"\n'
        '[tool.core-conformance.known-failures]\ntoy.second = "it mumbles, tracker/1"\n'
    )
    assert "toy_wrong: conformant with 1 known failure" in command().err
    assert command("toy_wrong", "-m", "nowhere").code == 3
    assert command("toy").code == 2  # the table's model is for its own backend
    monkeypatch.setenv("INFER_MODEL", "model")
    assert "toy: conformant; 4 of 4" in command("toy").err


def test_report_and_badge(command: Command, tmp_path: Path) -> None:
    done = command("toy", "-m", "model", "--report", "r.json", "--badge", "b.json", "--json")
    written = (tmp_path / "r.json").read_text()
    assert done.out == written
    assert [check["id"] for check in done.report["checks"]] == sorted(ALL)
    assert '"message": "3 checked, 1 refused"' in (tmp_path / "b.json").read_text()


def test_progress_and_table_on_a_terminal(command: Command, tmp_path: Path) -> None:
    assert "\x1b" not in command("toy", "-m", "model").err
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, "conformance", "toy", "-m", "model"],
        cwd=tmp_path,
        stdout=slave,
        stderr=slave,
        env=os.environ | {"TERM": "xterm", "NO_COLOR": "1"},
    ) as process:
        os.close(slave)
        shown = _read_all(master)
    assert process.returncode == 0
    assert "/4" in shown  # of the progress line
    assert "toy.second  passed" in shown
    assert "\t" not in shown


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def _read_all(terminal: int) -> str:
    shown = b""
    try:
        while part := os.read(terminal, 65536):
            shown += part
    except OSError:  # how Linux says that the other side has closed
        pass
    finally:
        os.close(terminal)
    return shown.decode()


@ISOLATION
def test_a_failure_shows_the_calls_that_led_to_it(
    command: Command, isolate: tuple[str, ...]
) -> None:
    done = command("toy_wrong", "-m", "model", *isolate)
    shown = done.err.partition("To reproduce:")[2]
    assert "model = core.load_model(" in shown
    assert "print(list(model.generate('second')))" in shown
    report = command("toy_wrong", "-m", "model", "--json", *isolate).report
    calls = {check["id"]: check["call"] for check in report["checks"]}
    assert calls.pop("toy.second").endswith("print(list(model.generate('second')))")
    assert set(calls.values()) == {""}


@ISOLATION
def test_a_seed_reaches_the_checks_and_the_report(
    command: Command, isolate: tuple[str, ...]
) -> None:
    done = command("toy", "-m", "model", "--seed", "7", "--json", *isolate)
    assert done.report["seed"] == 7
    done = command("toy", "-m", "model", "--deep", "5", *isolate)
    seed = done.err.partition("--seed ")[2].split()[0]
    assert seed.isdecimal()
    assert f"Seed {seed}: --seed {seed} gives the same inputs again." in done.err
    done = command("toy", "-m", "model", "--deep", "inf", *isolate)
    assert done.code == 0  # no toy check generates inputs, so that nothing is left to go on with
    assert "until you press Ctrl-C" in done.err
    assert "above 0" in command("toy", "-m", "model", "--deep", "0").err
