"""The processes that render chat templates: what they bound, and what they leave behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from core.errors import ChatTemplateError, GenerationCancelled
from core.kit.chat import render
from core.types import Message
from core_runtime.chat import pool, prompts
from core_runtime.chat.pool import TemplateProcesses, shared_processes
from core_runtime.chat.prompts import ChatPrompts, ChatTemplate, compile_template

pytestmark = pytest.mark.load  # a busy machine can make it fail

HELLO = [Message("user", "Hello")]
PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
ENDLESS = (
    "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{% if s.count('aa') %}{% endif %}"
    "{% endfor %}"
)

on_linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> TemplateProcesses:
    """A pool of the test's own."""
    own = TemplateProcesses()
    monkeypatch.setattr(prompts, "shared_processes", lambda: own)
    return own


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little time, for templates that would take all of it."""
    monkeypatch.setattr(prompts, "MAX_SECONDS", 0.5)


def pids(processes: TemplateProcesses) -> list[int]:
    return [process.pid for process in processes._all]


def gone(pid: int) -> bool:
    """Whether a process ends, and leaves no zombie, before a minute has passed."""
    for _ in range(3000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if _left_to_init(pid):
            return True
        time.sleep(0.02)
    return False


def _left_to_init(pid: int) -> bool:
    """A zombie whose parent is gone: a container's first process may wait for nobody."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return False
    return state == "Z" and int(parent) != os.getpid()


class Later:
    """A check that does something when it is asked for the n-th time."""

    def __init__(self, count: int, then: Callable[[], object]) -> None:
        self.left, self.then = count, then

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.then()


def cancel() -> None:
    raise GenerationCancelled


# ---------------------------------------------------------------- time and memory


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "source",
    [
        "{% set l = range(99999) | list %}{% for i in range(99999) %}{% if (l|sort)[0] %}"
        "{% endif %}{% endfor %}",
        "{{ ('a ' * 2500000) | wordwrap(1) }}",
        "{{ lipsum(n=1, min=10**7, max=10**7 + 1) }}",
        ENDLESS,
        "{{ [1] | slice(10**9) | list }}",
        "{% for i in range(99999) %}{{ ('<a ' * 99999) | striptags | length }}{% endfor %}",
    ],
    ids=["sort", "wordwrap", "lipsum", "count", "slice", "striptags"],
)
def test_what_computes_for_long_is_stopped(source: str) -> None:
    with pytest.raises(ChatTemplateError, match=r"stopped: it computed for 0\.5 s"):
        compile_template(source, {})(HELLO)
    assert compile_template(PLAIN, {})(HELLO) == "<user>Hello"


@on_linux
@pytest.mark.parametrize(
    "source",
    [
        "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}"
        "{% endfor %}",
        "{{ ('a' * 9000000) | replace('a', 'b' * 1000) }}",
        "{{ 'a' | center(5 * 10**9) }}",
        "{{ '%5000000000d' % 1 }}",
        "{{ [0] | batch(10**9, 1) | list }}",
    ],
    ids=["concatenation", "replace", "center", "format", "batch"],
)
def test_what_takes_much_memory_says_so(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="needs more than 512 MB"):
        compile_template(source, {})(HELLO)
    assert compile_template(PLAIN, {})(HELLO) == "<user>Hello"


@pytest.mark.parametrize(
    "source",
    [
        "{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}"
        "{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}"
        "{% endfor %}{{ n.x == [n.x] }}{{ n.x | string }}",
        "{% macro m(x) %}{{ m([x]) }}{% endmacro %}{{ m(1) }}",
        "{{ 9 ** 99999 }}",
        "{{ '%d' % (9 ** 99999) }}",
    ],
    ids=["nested", "compared", "macro", "number", "formatted"],
)
def test_what_is_too_deep_or_too_large_fails(source: str) -> None:
    with pytest.raises(ChatTemplateError):
        compile_template(source, {})(HELLO)
    assert compile_template(PLAIN, {})(HELLO) == "<user>Hello"


def test_start_up_code_of_the_site_is_not_run(
    processes: TemplateProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that prints there, or writes to the socket, which is descriptor 0, says nothing."""
    ran = tmp_path / "ran"
    (tmp_path / "sitecustomize.py").write_text(
        f"import os\nopen({str(ran)!r}, 'w')\nfor n in (0, 1, 2): os.write(n, b'noise')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert compile_template(PLAIN, {})(HELLO) == "<user>Hello"
    assert pids(processes)
    assert not ran.exists()


@pytest.mark.usefixtures("hasty")
def test_steps_within_their_limit_take_little_time() -> None:
    source = "{% for i in range(400) %}{% for j in range(490) %}{% endfor %}{% endfor %}"
    assert compile_template(source, {})(HELLO) == ""


@on_linux
def test_a_template_that_finds_memory_taken_gets_a_fresh_process(
    processes: TemplateProcesses,
) -> None:
    # Compiled templates are kept, so that one model's could leave too little for another's.
    template = compile_template(PLAIN, {})
    [pid] = pids(processes)
    held = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (held + 2**20, held + 2**20))
    content = "x" * 5_000_000
    assert template([Message("user", content)]) == f"<user>{content}"
    assert gone(pid)


def test_long_messages_are_refused_before_they_are_rendered(processes: TemplateProcesses) -> None:
    with pytest.raises(ChatTemplateError, match="have 10000001 characters"):
        ChatPrompts(PLAIN, {}, {}).render([Message("user", "x" * 10_000_001)])
    with pytest.raises(ChatTemplateError, match=r"broken: it has 10000001 characters"):
        compile_template("x" * 10_000_001, {})
    assert pids(processes) == []


@pytest.mark.parametrize("character", ["é", "\ud800", "𝄞", "\0"])
def test_any_text_comes_through(character: str) -> None:
    content = character * 500_000  # more than a socket holds
    assert compile_template("{{ messages[0].content }}", {})([Message("user", content)]) == content


def test_an_error_without_words_has_its_name() -> None:
    with pytest.raises(ChatTemplateError, match="TemplateError"):
        compile_template("{{ raise_exception('') }}", {})(HELLO)


# ---------------------------------------------------------------- giving up


def test_a_rendering_that_is_cancelled_ends_at_once(processes: TemplateProcesses) -> None:
    template = compile_template(ENDLESS, {})
    [pid] = pids(processes)
    with pytest.raises(GenerationCancelled):
        template(HELLO, Later(5, cancel))
    assert gone(pid)
    assert compile_template(PLAIN, {})(HELLO) == "<user>Hello"


def test_a_message_of_nothing_but_special_tokens_can_be_cancelled() -> None:
    content = "<s>" * 100_000
    messages, asked = [Message("user", content)], list[None]()
    prompt = render(messages, ["<s>"], lambda turns: turns[0].content, lambda: asked.append(None))
    assert prompt == content
    assert len(asked) == -(-100_000 // 4096)
    with pytest.raises(GenerationCancelled):
        render(messages, ["<s>"], lambda turns: turns[0].content, Later(5, cancel))


def test_a_cancel_that_is_set_already_costs_no_process(processes: TemplateProcesses) -> None:
    template = compile_template(PLAIN, {})
    before = pids(processes)
    with pytest.raises(GenerationCancelled):
        template(HELLO, cancel)
    assert pids(processes) == before


def test_an_interrupt_ends_a_rendering(processes: TemplateProcesses) -> None:
    template = compile_template(ENDLESS, {})
    [pid] = pids(processes)
    with pytest.raises(KeyboardInterrupt):
        template(HELLO, Later(5, lambda: signal.raise_signal(signal.SIGINT)))
    assert gone(pid)
    assert compile_template(PLAIN, {})(HELLO) == "<user>Hello"


def test_an_error_of_the_check_itself_comes_through(processes: TemplateProcesses) -> None:
    def fail() -> None:
        raise TimeoutError("the caller's own")

    with pytest.raises(TimeoutError, match="the caller's own"):
        compile_template(PLAIN, {})(HELLO, Later(2, fail))


def test_a_rendering_within_a_rendering(processes: TemplateProcesses) -> None:
    template = compile_template(PLAIN, {})
    found: list[str] = []
    check = Later(2, lambda: found.append(template(HELLO)))
    assert template(HELLO, check) == "<user>Hello"
    assert found == ["<user>Hello"]


def test_who_finds_all_of_them_busy_waits_and_may_be_cancelled(
    processes: TemplateProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_MOST", 1)
    template = compile_template(PLAIN, {})

    def nested() -> None:
        with pytest.raises(GenerationCancelled):
            template(HELLO, Later(4, cancel))

    assert template(HELLO, Later(2, nested)) == "<user>Hello"


# ---------------------------------------------------------------- processes that come and go


def test_threads_share_few_processes(processes: TemplateProcesses) -> None:
    template = compile_template(PLAIN, {})
    conversations = [[Message("user", str(number))] for number in range(200)]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(template, conversations))
    assert found == [f"<user>{number}" for number in range(200)]
    assert 1 <= len(pids(processes)) <= 2


def test_one_that_was_killed_while_idle_is_replaced(processes: TemplateProcesses) -> None:
    template = compile_template(PLAIN, {})
    [pid] = pids(processes)
    os.kill(pid, signal.SIGKILL)
    assert template(HELLO) == "<user>Hello"
    assert pids(processes) != [pid]
    assert gone(pid)


def test_one_that_is_killed_again_and_again_is_an_error(processes: TemplateProcesses) -> None:
    template = compile_template(PLAIN, {})

    def kill() -> None:
        for pid in pids(processes):
            os.kill(pid, signal.SIGKILL)

    class Killer:
        def __call__(self) -> None:
            kill()

    with pytest.raises(ChatTemplateError, match=r"signal 9|cannot be started"):
        template(HELLO, Killer())
    assert template(HELLO) == "<user>Hello"


def test_they_end_with_the_last_template(processes: TemplateProcesses) -> None:
    del processes
    own = TemplateProcesses()
    template = ChatTemplate(PLAIN, {})
    template._processes = own
    template(HELLO)
    [pid] = pids(own)
    del own, template
    assert gone(pid)


def test_all_models_share_them() -> None:
    assert shared_processes() is shared_processes()
    assert ChatTemplate(PLAIN, {})._processes is ChatTemplate("", {})._processes


@on_linux
def test_a_process_has_nothing_of_its_parent(processes: TemplateProcesses) -> None:
    os.environ["CORE_TEST_SECRET"] = "hush"
    try:
        ChatTemplate(PLAIN, {})(HELLO)
    finally:
        del os.environ["CORE_TEST_SECRET"]
    [pid] = pids(processes)
    root = Path(f"/proc/{pid}")
    assert b"hush" not in (root / "environ").read_bytes()
    assert {path.name for path in (root / "fd").iterdir()} == {"0", "1", "2"}
    assert (root / "cwd").readlink() == Path("/")
    limits = (root / "limits").read_text()
    for name in ("core file size", "file size"):
        line = next(line for line in limits.splitlines() if line.startswith(f"Max {name}"))
        assert line.split()[-3:-1] == ["0", "0"]
    assert "Max address space         unlimited" not in limits


@pytest.mark.parametrize("frozen", [False, True])
def test_without_an_interpreter_the_error_says_so(
    processes: TemplateProcesses, monkeypatch: pytest.MonkeyPatch, frozen: bool
) -> None:
    monkeypatch.delitem(sys.modules, "multiprocessing.spawn", raising=False)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    if not frozen:
        monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(ChatTemplateError, match=r"is empty|is a frozen program") as caught:
        compile_template(PLAIN, {})
    assert "set_executable" in str(caught.value)


@pytest.mark.parametrize("name", ["/nowhere/python", "/bin/false", "/bin/cat"])
def test_what_is_no_interpreter_is_named(
    processes: TemplateProcesses, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delitem(sys.modules, "multiprocessing.spawn", raising=False)
    monkeypatch.setattr(sys, "executable", name)
    with pytest.raises(ChatTemplateError, match=f"cannot be started.*{name}"):
        compile_template(PLAIN, {})


def test_the_interpreter_of_multiprocessing_is_used(
    processes: TemplateProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    import multiprocessing.spawn

    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", os.fsencode(sys.executable))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert compile_template(PLAIN, {})(HELLO) == "<user>Hello"


# ---------------------------------------------------------------- programs of all kinds

PROGRAM = """
import os, signal, socket, sys, threading
from core_runtime.chat.prompts import compile_template
from core.types import Message

def render(source={plain!r}):
    return compile_template(source, {{}})([Message("user", "Hello")])

def pids():
    from core_runtime.chat.pool import shared_processes
    return [process.pid for process in shared_processes()._all]

"""


def run(program: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with every warning an error."""
    code = PROGRAM.format(plain=PLAIN) + textwrap.dedent(program)
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload,no-any-return]


def said(program: str, **options: object) -> str:
    done = run(program, **options)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@on_linux
def test_nothing_is_left_of_them() -> None:
    found = said(
        """
        def held():
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                children = file.read().split()
            return len(os.listdir("/proc/self/fd")), len(children), threading.active_count()

        template = compile_template("x", {})
        del template
        before = held()
        for _ in range(3):
            template = compile_template("x", {})
            template([])
            del template
        assert held() == before, (held(), before)
        print("the same")
        """
    )
    assert found == "the same\n"


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_they_end_with_their_program(end: str) -> None:
    done = run(f"kept = compile_template('x', {{}}); print(*pids(), flush=True)\n{end}")
    assert done.stderr == ""
    [pid] = done.stdout.split()
    assert gone(int(pid))


def test_one_that_computes_ends_although_nobody_kills_it() -> None:
    done = run(
        f"""
        from core_runtime.chat import prompts
        prompts.MAX_SECONDS = 0.5
        kept = compile_template("x", {{}})
        print(*pids(), flush=True)
        asked = []
        def check():
            asked.append(None)
            if len(asked) > 5:
                os._exit(0)
        endless = prompts.ChatTemplate({ENDLESS!r}, {{}})
        endless([Message("user", "x")], check)
        """
    )
    [pid] = done.stdout.split()
    assert gone(int(pid))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_has_processes_of_its_own() -> None:
    found = said(
        """
        kept = compile_template("x", {})
        [parents] = pids()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, f"{render()} {pids() != [parents]}".encode())
            kept = None
            sys.exit(0)
        os.waitpid(child, 0)
        print(os.read(reader, 100).decode(), render(), pids() == [parents])
        """
    )
    assert found == "<user>Hello True <user>Hello True\n"


def test_a_fork_does_not_keep_its_parents_process_alive() -> None:
    done = run(
        """
        kept = compile_template("x", {})
        print(*pids(), flush=True)
        fork = os.fork()
        if fork == 0:
            for standard in range(3):
                os.close(standard)
            signal.pause()
        else:
            print(fork, flush=True)
            os._exit(0)
        """
    )
    process, fork = map(int, done.stdout.split())
    try:
        assert gone(process)
    finally:
        os.kill(fork, signal.SIGKILL)


def test_a_program_without_standard_streams(tmp_path: Path) -> None:
    said(
        f"""
        for standard in range(3):
            os.close(standard)
        prompt = render()
        kept = compile_template("x", {{}})
        from core_runtime.chat.pool import shared_processes
        lowest = min(process._socket.fileno() for process in shared_processes()._all)
        with open({str(tmp_path / "said")!r}, "w") as file:
            file.write(f"{{prompt}} {{lowest > 2}}")
        """
    )
    assert (tmp_path / "said").read_text() == "<user>Hello True"


@pytest.mark.parametrize(
    "before",
    [
        "os.rmdir(os.getcwd())",
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)",
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "signal.signal(signal.SIGPROF, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 20))",
        "socket.setdefaulttimeout(0.001)",
        "os.environ.clear(); os.environ['PYTHONHOME'] = '/nowhere'",
        "sys.setswitchinterval(1e-6)",
    ],
)
def test_programs_that_changed_their_surroundings(before: str, tmp_path: Path) -> None:
    found = said(
        f"""
        {before}
        kept = compile_template("x", {{}})
        for pid in pids():
            os.kill(pid, signal.SIGKILL)
        print(render())
        """,
        cwd=tmp_path,
    )
    assert found == "<user>Hello\n"


def test_an_ignored_signal_does_not_lift_the_limit() -> None:
    found = said(
        f"""
        from core_runtime.chat import prompts
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGPROF}})
        prompts.MAX_SECONDS = 0.5
        try:
            render({ENDLESS!r})
        except Exception as error:
            print(error)
        """
    )
    assert "computed for 0.5 s" in found


def test_programs_that_have_no_descriptor_left_get_an_error() -> None:
    found = said(
        """
        import resource
        from core.errors import ChatTemplateError
        render()
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        try:
            render()
        except ChatTemplateError as error:
            print(error)
        """
    )
    assert "cannot be started" in found


def test_a_handler_may_render_where_it_interrupts_a_rendering() -> None:
    found = said(
        """
        template = compile_template("{{ messages[0].content }}", {})
        count = [0]

        def handler(*_):
            assert template([Message("user", "inner")]) == "inner"
            count[0] += 1

        signal.signal(signal.SIGALRM, handler)
        for rest in range(20):
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            while count[0] <= rest:
                assert template([Message("user", "outer")]) == "outer"
        print("done")
        """
    )
    assert found == "done\n"


def test_interrupts_at_any_moment_leave_nothing() -> None:
    found = said(
        """
        import random
        random.seed(0)
        template = compile_template("{{ messages[0].content }}", {})
        [message] = messages = [Message("user", "x" * 100000)]
        for _ in range(60):
            try:
                signal.setitimer(signal.ITIMER_REAL, random.random() * 0.02)
                signal.signal(signal.SIGALRM, signal.default_int_handler)
                while True:
                    template(messages)
            except KeyboardInterrupt:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        assert template(messages) == message.content
        assert len(pids()) <= 4
        print("done")
        """
    )
    assert found == "done\n"
