"""Running checks: threads, limits, what a failed check leaves behind, what remains at exit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import PropertyMock, patch

import pytest

from core.errors import CoreError
from core.protocols import PROTOCOL_VERSION, Capability
from core_conformance.checking.check import Check, Violation, must
from core_conformance.checking.subject import Effort, Subject
from core_conformance.running import runner as runner_module
from core_conformance.running.continuing import Continuing
from core_conformance.running.isolation import Isolated
from core_conformance.running.leftovers import Leftovers
from core_conformance.running.result import Status
from core_conformance.running.runner import LIMIT, InProcess, StillRunning, Worker, run_check
from core_conformance.running.target import CannotStart, Target, applicable

pytestmark = pytest.mark.load  # a busy machine can make it fail


def a_check(run: Callable[[Subject], None], *needs: Capability) -> Check:
    return Check("a.check", "It MUST.", needs, 1, run)


@pytest.fixture
def runner(toys: Path, tmp_path: Path) -> InProcess:
    runner = InProcess(Target("toy", str(tmp_path)), 60)
    runner.start()
    return runner


@pytest.fixture
def subject(toys: Path, tmp_path: Path) -> Subject:
    return Target("toy", str(tmp_path)).subject()


def test_the_words_of_a_violation_are_the_reason(subject: Subject) -> None:
    result = run_check(a_check(lambda _: must(False, "seen, and wanted")), subject)
    assert (result.status, result.reason) == (Status.FAILED, "seen, and wanted")
    assert result.details == ""


def test_an_error_after_a_violation_is_shown(subject: Subject) -> None:
    def run(_: Subject) -> None:
        try:
            raise KeyError("weights")
        except KeyError as error:
            raise Violation("seen, and wanted") from error

    result = run_check(a_check(run), subject)
    assert result.reason == "seen, and wanted"
    assert "KeyError: 'weights'" in result.details


def test_without_what_it_needs_the_refusal_is_checked(subject: Subject) -> None:
    def run(_: Subject) -> None:
        pytest.fail("the check itself ran")

    check = a_check(run, Capability.GENERATE, Capability.CLASSIFY, Capability.LABELS)
    result = run_check(check, subject)
    assert (result.status, result.refused) == (Status.PASSED, "classify")


def test_checks_share_one_model_and_one_thread(runner: InProcess) -> None:
    seen: list[tuple[int, int]] = []

    def run(subject: Subject) -> None:
        seen.append((id(subject.model), threading.get_ident()))
        must(bool(seen), "seen")

    for _ in range(3):
        assert runner.run(a_check(run)).status is Status.PASSED
    runner.stop()
    assert len(set(seen)) == 1
    assert seen[0][1] != threading.get_ident()


def test_after_a_failure_the_next_check_gets_a_new_model(runner: InProcess) -> None:
    models = []

    def run(subject: Subject) -> None:
        models.append(subject.model)
        must(len(models) != 1, "the first one fails")

    statuses = [runner.run(a_check(run)).status for _ in range(3)]
    runner.stop()
    assert statuses == [Status.FAILED, Status.PASSED, Status.PASSED]
    assert models[0] is not models[1]
    assert models[1] is models[2]


def test_after_a_hang_nothing_runs_and_nothing_is_waited_for(toys: Path, tmp_path: Path) -> None:
    runner, go_on = InProcess(Target("toy", str(tmp_path)), 0.2), threading.Event()
    runner.start()
    hung = runner.run(a_check(lambda _: must(go_on.wait(60), "released")))
    after = runner.run(a_check(lambda _: None))
    runner.stop()
    go_on.set()
    assert (hung.status, after.status) == (Status.TIMEOUT, Status.NOT_RUN)
    assert "a.check did not end within 0.2 s" in after.reason


def test_an_interrupt_reaches_the_caller_and_ends_the_run(runner: InProcess) -> None:
    def run(_: Subject) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(a_check(run))
    assert runner.run(a_check(lambda _: None)).status is Status.NOT_RUN
    runner.stop()


def test_isolated_a_check_that_the_other_process_lacks_has_a_reason(
    toys: Path, tmp_path: Path
) -> None:
    result = Isolated(Target("toy", str(tmp_path)), 60).run(a_check(lambda _: None))
    assert result.status is Status.CRASHED
    assert "KeyError: 'a.check'" in result.details


def test_a_worker_hands_over_results_and_errors() -> None:
    worker = Worker()
    assert worker.run(lambda: 6 * 7, 60) == 42
    with pytest.raises(ZeroDivisionError):
        worker.run(lambda: 1 // 0, 60)
    with pytest.raises(TimeoutError, match="of the work's own"):
        worker.run(lambda: (_ for _ in ()).throw(TimeoutError("of the work's own")), 60)
    worker.stop()


def test_a_worker_is_not_waited_for_after_the_limit() -> None:
    worker, go_on = Worker(), threading.Event()
    with pytest.raises(StillRunning):
        worker.run(lambda: go_on.wait(60), 0.05)
    go_on.set()
    worker.stop()


def test_checks_of_later_versions_do_not_apply(toys: Path) -> None:
    assert "toy.tomorrow" not in [check.id for check in applicable(PROTOCOL_VERSION)]
    assert "toy.tomorrow" in [check.id for check in applicable(PROTOCOL_VERSION + 1)]


def test_threads_left_are_those_that_python_would_wait_for() -> None:
    go_on = threading.Event()
    before = threading.Thread(target=go_on.wait, args=(60,), name="before")
    before.start()
    left = Leftovers()
    threads = [
        threading.Thread(target=go_on.wait, args=(60,), name="stays"),
        threading.Thread(target=go_on.wait, args=(60,), name="daemon", daemon=True),
        threading.Thread(target=lambda: None, name="ends"),
    ]
    for thread in threads:
        thread.start()
    names = [thread.name for thread in left.threads(grace=0.2)]
    go_on.set()
    for thread in (before, *threads):
        thread.join()
    assert names == ["stays"]


def test_a_slow_model_gets_more_time(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "pass_seconds", lambda subject: 2.0)
    assert runner_module.limit_for(subject, None) == 2.0 * runner_module.PASSES > LIMIT
    assert runner_module.limit_for(subject, 7.0) == 7.0
    monkeypatch.setattr(runner_module, "pass_seconds", lambda subject: 0.001)
    assert runner_module.limit_for(subject, None) == LIMIT
    subject.effort = Effort(70.0, deep=True)
    assert runner_module.limit_for(subject, None) == runner_module.DEEP_LIMIT + 70.0


def test_a_model_that_fails_while_it_is_timed_gets_the_usual_time(subject: Subject) -> None:
    subject.close()
    with patch.object(type(subject), "model", PropertyMock(side_effect=CoreError("no"))):
        assert runner_module.limit_for(subject, None) == LIMIT


def test_after_a_hang_that_no_other_process_can_follow_nothing_runs(
    toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Isolated) -> None:
        raise CannotStart("not found there")

    let_go = threading.Event()
    monkeypatch.setattr(Isolated, "start", refused)
    runner = Continuing(Target("toy", str(tmp_path)), 0.5)
    runner.start()
    assert runner.run(a_check(lambda _: must(let_go.wait(), ""))).status is Status.TIMEOUT
    assert runner.hangs
    assert runner.ended.endswith("and no other process can continue: not found there")
    assert runner.run(a_check(lambda _: None)).status is Status.NOT_RUN
    let_go.set()
