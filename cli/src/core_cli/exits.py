"""Exit codes, errors as messages, and the standard streams of the process."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import traceback
import warnings
from typing import Any, TextIO

import click
import click._compat

from core import errors
from core.errors import CoreError, InvalidOptionError, PromptTooLongError
from core.system import terminal
from core_cli import output
from core_cli.interrupts import Terminated

OK = 0
RUNTIME = 1
USAGE = 2
MODEL_NOT_FOUND = 3
BACKEND = 4
ROWS_FAILED = 5
INTERRUPTED = 130
TERMINATED = 143

# The first match counts, so exceptions to a rule come before it.
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (Terminated, TERMINATED),
    (KeyboardInterrupt, INTERRUPTED),
    (errors.OptionError, USAGE),
    (errors.OutputError, USAGE),
    (errors.ModelNotFoundError, MODEL_NOT_FOUND),
    (errors.BackendProcessError, RUNTIME),
    (errors.BackendError, BACKEND),
)


class CommandFailed(Exception):
    """An exception that ends the command with a message on stderr and an exit code."""

    def __init__(self, message: str, exit_code: int = RUNTIME) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def check_accuracy(accuracy: float | None, least: float) -> None:
    """Raise `CommandFailed` for an accuracy below ``--fail-under``, or without one."""
    if accuracy is None or accuracy < least:
        raise CommandFailed(
            f"Accuracy {100 * (accuracy or 0):.1f} % is below --fail-under {100 * least:g} %."
        )


def code_of(error: BaseException) -> int:
    """Return the exit code for an exception that ended a command."""
    if isinstance(error, CommandFailed | click.ClickException | click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else RUNTIME if error.code else OK
    return next((code for kind, code in _CODES if isinstance(error, kind)), RUNTIME)


def reported(error: BaseException) -> BaseException:
    """Report an error on stderr; return the exception that click should see instead.

    click itself reports its own exceptions and broken pipes.
    """
    if isinstance(error, KeyboardInterrupt):
        return click.exceptions.Exit(code_of(error))
    if not isinstance(error, Exception) or isinstance(error, _CLICKS_OWN) or _broken_pipe(error):
        return error
    if debugging():
        output.say("".join(traceback.format_exception(error)), end="")
    output.say(f"Error: {describe(error)}")
    return click.exceptions.Exit(code_of(error))


def ended(error: Exception) -> int:
    """Report an exception that left the program on stderr; return the exit code for it."""
    if isinstance(error, click.Abort):  # raised by click for Ctrl-C outside of a command
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        words = io.StringIO()
        error.show(words)
        output.say(words.getvalue(), end="")
    elif not _broken_pipe(error):
        reported(error)
    return code_of(error)


def describe(error: BaseException) -> str:
    """Return the message of one of our errors, or type and message of any other."""
    if isinstance(error, errors.CoreError):
        return in_flags(error)
    if isinstance(error, CommandFailed):
        return str(error)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if debugging() else f"{text} (--debug shows the traceback)"


def debugging() -> bool:
    """Return whether tracebacks are wanted: ``--debug`` or a non-zero INFER_RAISE_ERRORS."""
    context = click.get_current_context(silent=True)
    requested = bool(context and context.find_root().params.get("debug"))
    return requested or os.environ.get("INFER_RAISE_ERRORS", "0") not in ("", "0")


_CLICKS_OWN = click.ClickException | click.exceptions.Exit | click.Abort


def _broken_pipe(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def in_flags(error: CoreError) -> str:
    """Return the message of an error that ended a command or a row."""
    text, flags = str(error), _flags()
    if isinstance(error, InvalidOptionError) and error.option == "options" and "pairs" in flags:
        return text.replace("options=", "-O ", 1)
    if isinstance(error, InvalidOptionError) and error.option in flags:
        return text.replace(f"{error.option}=", f"{flags[error.option]} ", 1)
    if isinstance(error, PromptTooLongError) and "context_len" in flags:
        return text.replace("context_len", flags["context_len"])
    return text


def _flags() -> dict[str, str]:
    """Return the long flag of each parameter of the current or last command."""
    context = click.get_current_context(silent=True)
    command = context.command if context else None
    if isinstance(command, click.Group) and context is not None:
        command = command.commands.get(context.invoked_subcommand or "")
    options = command.params if command else ()
    return {
        option.name: max(option.opts, key=len)
        for option in options
        if isinstance(option, click.Option) and option.name
    }


def prepare() -> None:
    """Prepare the streams; stdout is reserved for this program (`core.system.terminal`).

    Exits with 1 when stdout is closed.
    """
    # The next file opened would get the number of a closed standard descriptor.
    for number in (0, 1, 2):
        if not _is_open(number):
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest number

    # Python sets a stream to None if it was closed at startup.
    nowhere = sys.stdout is None
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)

    terminal.take()
    vars(click._compat)["sys"] = _SysOfClick()

    for stream in (terminal.stream(), sys.stderr):
        # A character that the terminal's encoding lacks is shown as an escape, never an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning

    if nowhere:
        output.say("Error: stdout is closed. To run without output, redirect it to /dev/null.")
        sys.exit(RUNTIME)


def settle() -> None:
    """Drop unwritable output: Python would retry at exit, and exit with 120."""
    for stream in {terminal.stream(), sys.stdout, sys.stderr}:
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _SysOfClick:
    """The module ``sys`` as click sees it, which looks up stdout there at each call.

    Its ``echo``, ``--help``, completions and ``File("-")`` write to the private stream.
    """

    @property
    def stdout(self) -> TextIO:
        return terminal.stream()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    output.warn(str(message))
