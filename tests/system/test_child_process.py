"""Child processes that are started while Ctrl-C comes: none is lost, whoever starts it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.load,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc"),
]

PROGRAM = """
import faulthandler, gc, os, random, signal, subprocess, sys, threading, time
from core_runtime.chat.pool import TemplateProcesses
from core.system.child_process import Child, started

def chat():
    TemplateProcesses()._started().end()

def bridge():
    from core_mlx_lm_bridge.protocol import Load
    from core_mlx_lm_bridge.session import WorkerSession, WorkerSettings
    command, load = (sys.executable, "-c", ""), Load(path="", version=0)
    settings = WorkerSettings("mlx_lm", command, {}, load, 60.0)
    try:
        WorkerSession(settings).start(lambda: None)
    except Exception as error:
        assert "BackendProcessError" in repr(type(error)), error

def asked():
    popen = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)
    return Child(popen, popen.stdin)

def held():
    children = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as file:
                children += file.read().split()
        except OSError:
            pass
    return children, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

def settled(before):
    for _ in range(2000):
        gc.collect()
        if held() == before:
            return True
        time.sleep(0.01)
    return False

def interrupted(start):
    try:
        start()
    except KeyboardInterrupt:
        return True
    return False

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def wrapped(owner, name, before=lambda: None, after=lambda: None):
    inner = getattr(owner, name)
    def wrapper(*args, **keywords):
        before()
        try:
            return inner(*args, **keywords)
        finally:
            after()
    setattr(owner, name, wrapper)

signal.signal(signal.SIGINT, signal.default_int_handler)
faulthandler.dump_traceback_later(240, exit=True)
"""


def said(program: str) -> str:
    """What a program prints that has been run to its end, with every warning an error."""
    code = PROGRAM + textwrap.dedent(program)
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.parametrize("start", ["chat", pytest.param("bridge", marks=pytest.mark.whole)])
@pytest.mark.parametrize(
    "moment",
    [
        'subprocess.Popen, "__init__", before=interrupt',
        'subprocess.Popen, "_execute_child", before=interrupt',
        'subprocess, "_fork_exec", before=interrupt',
        'subprocess, "_fork_exec", after=interrupt',
        'subprocess.Popen, "_execute_child", after=interrupt',
        'subprocess.Popen, "__init__", after=interrupt',
    ],
)
def test_an_interrupt_at_each_step_of_a_start_leaves_nothing(start: str, moment: str) -> None:
    assert (
        said(
            f"""
        {start}()
        before = held()
        wrapped({moment})
        for _ in range(5):
            assert interrupted({start})
        assert settled(before), (held(), before)
        print("nothing")
        """
        )
        == "nothing\n"
    )


@pytest.mark.parametrize("start", ["chat", pytest.param("bridge", marks=pytest.mark.whole)])
def test_interrupts_at_any_moment_of_a_start_leave_nothing(start: str) -> None:
    assert (
        said(
            f"""
        {start}()
        before = held()
        random.seed(0)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        sys.unraisablehook = lambda ignored: None  # one that comes to a finalizer gets nowhere
        for _ in range(200):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4 + random.random() * 3e-3)
                for _ in range(8):
                    {start}()
            except KeyboardInterrupt:
                pass
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert settled(before), (held(), before)
        print("nothing")
        """
        )
        == "nothing\n"
    )


def test_what_is_made_for_nobody_is_ended() -> None:
    assert (
        said(
            """
        before = held()
        pids = []
        go = threading.Event()

        def make():
            child = asked()
            pids.append(child.pid)
            interrupt()
            go.wait()
            return child

        try:
            started(make)
        except KeyboardInterrupt as error:
            caught = error  # and with it the frames that were interrupted
        [pid] = pids
        os.kill(pid, 0)
        go.set()
        assert settled(before), (held(), before)
        print("ended")
        """
        )
        == "ended\n"
    )


def test_a_child_is_ended_again_where_an_interrupt_came_between() -> None:
    assert (
        said(
            """
        before = held()
        child = asked()
        steps = [lambda: signal.raise_signal(signal.SIGINT)]
        wrapped(os, "kill", before=lambda: steps and steps.pop()())
        assert interrupted(child.end)
        del child
        assert settled(before), (held(), before)
        print("ended")
        """
        )
        == "ended\n"
    )


def test_a_handler_may_start_one_where_it_interrupts_a_start() -> None:
    assert (
        said(
            """
        chat()
        before = held()
        count = [0]

        def handler(*_):
            count[0] += 1
            chat()

        signal.signal(signal.SIGALRM, handler)
        random.seed(0)
        for rest in range(100):
            signal.setitimer(signal.ITIMER_REAL, 1e-4 + random.random() * 2e-3)
            while count[0] <= rest:
                chat()
        assert settled(before), (held(), before)
        print("done")
        """
        )
        == "done\n"
    )


def test_without_a_thread_it_is_started_all_the_same() -> None:
    assert (
        said(
            """
        import _thread
        def none(*_):
            raise RuntimeError("can't start new thread")
        _thread.start_new_thread = none
        chat()
        try:
            started(lambda: 1 // 0)
        except ZeroDivisionError:
            print("done")
        """
        )
        == "done\n"
    )


def test_an_interrupt_within_a_look_at_the_process_does_not_hang_its_end() -> None:
    # Popen.poll() would take a lock, be interrupted before its try, and never give it back.
    assert (
        said(
            """
        before = held()
        child = asked()
        steps = [lambda: signal.raise_signal(signal.SIGINT)]
        wrapped(os, "waitpid", before=lambda: steps and steps.pop()())
        assert interrupted(lambda: child.status)
        child.kill()
        assert child.status == -signal.SIGKILL
        child.end()
        del child
        assert settled(before), (held(), before)
        print("ended")
        """
        )
        == "ended\n"
    )
