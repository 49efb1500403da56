"""Messages typed on a terminal, with the history of earlier sessions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from core.system.terminal import stream
from core_cli import output

if TYPE_CHECKING:
    from prompt_toolkit.history import History

Read = Callable[[str], str]


def next_message(read: Read, draft: str) -> str | None:
    """Return the next message; None at the end. Ctrl-C discards the current line."""
    while True:
        try:
            return read(draft).strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            draft = ""
            output.say("Type /exit or Ctrl-D to leave.")


def _history() -> History:
    """Return the lines typed in earlier sessions; of this one alone if they cannot be kept."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    file = os.path.join(state, "infer-cli", "chat_history")
    try:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        os.close(os.open(file, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(file)


def reader() -> Read:
    """Return a function that reads a message of one or more lines, with history, from a draft."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output import create_output

    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        "> ",
        history=_history(),
        multiline=True,
        key_bindings=keys,
        prompt_continuation="  ",
        output=create_output(stream() if output.is_terminal() else sys.stderr),
    )
    return lambda draft: session.prompt(default=draft)
