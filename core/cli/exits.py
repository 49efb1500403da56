"""Exit codes, and how an exception becomes one line on stderr and one of them."""

from __future__ import annotations

import errno
import io
import os
import traceback

import click

from core import errors
from core.cli import output
from core.cli.interrupts import Terminated
from core.cli.wording import in_flags

OK = 0
RUNTIME = 1
USAGE = 2
MODEL_NOT_FOUND = 3
BACKEND = 4
ROWS_FAILED = 5
INTERRUPTED = 130
TERMINATED = 143

# The first match counts, so exceptions to a rule stand above it.
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
    """Ends the command with a message on stderr and an exit code."""

    def __init__(self, message: str, exit_code: int = RUNTIME) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def code_of(error: BaseException) -> int:
    """The exit code for an exception that ended a command."""
    if isinstance(error, CommandFailed | click.ClickException | click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else RUNTIME if error.code else OK
    return next((code for kind, code in _CODES if isinstance(error, kind)), RUNTIME)


def reported(error: BaseException) -> BaseException:
    """Say on stderr what went wrong; returns what click should see instead of ``error``.

    click's own exceptions and a reader of our output who left are click's to report.
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
    """The exit code for what got out of the program, and the last words about it on stderr."""
    if isinstance(error, click.Abort):  # what click makes of Ctrl-C outside of a command
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        words = io.StringIO()
        error.show(words)
        output.say(words.getvalue(), end="")
    elif not _broken_pipe(error):
        reported(error)
    return code_of(error)


def describe(error: BaseException) -> str:
    """The message of an error of ours; type and message of any other."""
    if isinstance(error, errors.CoreError):
        return in_flags(error)
    if isinstance(error, CommandFailed):
        return str(error)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if debugging() else f"{text} (--debug shows the traceback)"


def debugging() -> bool:
    """Whether tracebacks are wanted: ``--debug``, or INFER_RAISE_ERRORS set to something."""
    context = click.get_current_context(silent=True)
    asked = bool(context and context.find_root().params.get("debug"))
    return asked or os.environ.get("INFER_RAISE_ERRORS", "0") not in ("", "0")


_CLICKS_OWN = click.ClickException | click.exceptions.Exit | click.Abort


def _broken_pipe(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE
