"""Exit codes, and the conversion of exceptions into messages and exit codes."""

from __future__ import annotations

import errno
import io
import os
import traceback

import click

from core import errors
from core_cli import output
from core_cli.interrupts import Terminated
from core_cli.wording import in_flags

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
    asked = bool(context and context.find_root().params.get("debug"))
    return asked or os.environ.get("INFER_RAISE_ERRORS", "0") not in ("", "0")


_CLICKS_OWN = click.ClickException | click.exceptions.Exit | click.Abort


def _broken_pipe(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE
