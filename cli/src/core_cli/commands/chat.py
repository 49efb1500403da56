"""``infer-cli chat``: a conversation on a terminal, or one answer elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from core.system.terminal import stream
from core_cli import exits, options, output

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core.protocols import TextModel
    from core_cli.commands.conversation import Conversation

_HELP = """\
/help           show these lines
/reset          clear the conversation, but keep the system message
/system TEXT    clear the conversation and set the system message (none without TEXT)
/save FILE      save the conversation as a line of JSON, which generate -i can read
/load FILE      continue a saved conversation
/exit           leave, like Ctrl-D
Enter sends, Alt-Enter (Esc, then Enter) starts a new line. Ctrl-C stops an answer."""


@click.command()
@click.argument("message", nargs=-1, metavar="[MESSAGE]...")
@options.model_option
@click.option("-s", "--system", help="System message for the conversation.")
@options.template_options
@options.answer_options
@options.sampling_options
@options.load_options
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Report the backend and settings chosen, with reasons, on stderr.",
)
def chat(message: tuple[str, ...], **given: Any) -> None:
    """Chat with a model.

    On a terminal, type /help for commands. With MESSAGE or stdin input, prints one answer and
    exits.
    """
    from core.protocols import Capability
    from core_cli.commands.conversation import Conversation
    from core_cli.flags import SamplingFlags
    from core_cli.loading import explain, load

    flags = SamplingFlags(**given)
    model_name = flags.need_model()
    config = flags.answer_config()
    text = " ".join(message)
    loaded = load(model_name, flags.load_config(), Capability.CHAT)
    with loaded.model as model:
        if flags.verbose:
            explain(loaded)
        talk = Talk(model, config, Conversation(flags.system), flags.opening or "")
        if not text and sys.stdin.isatty():
            _converse(talk)
        elif not talk.answer(text or _piped()):
            raise KeyboardInterrupt


def _piped() -> str:
    text = sys.stdin.read().removeprefix("\ufeff").rstrip("\r\n")
    if not text:
        raise click.UsageError(
            "No message. Pass one as an argument or on stdin, or run chat on a terminal."
        )
    return text


@dataclass(frozen=True, slots=True)
class Talk:
    """A model and its conversation; each answer begins with ``opening``."""

    model: TextModel
    config: GenerateConfig
    conversation: Conversation
    opening: str = ""

    def answer(self, text: str) -> bool:
        """Stream the answer to a message and keep both; return False if Ctrl-C ended it.

        An interrupted answer is kept. A message is dropped if it fails, has an empty answer, or
        is cancelled by the model's side. Raises `CoreError`.
        """
        from core.errors import GenerationCancelled
        from core.types import Message
        from core_cli.interrupts import Stop, noted

        asked, said, stop = Message("user", text), self.opening, Stop()
        begun = [Message("assistant", said)] if said else []
        config = replace(self.config, cancel=stop.asked, continue_final_message=bool(begun))
        messages = self.conversation.messages(asked, *begun)
        with noted(stop), closing(self.model.chat(messages, config)) as stream:
            try:
                output.write_text(said)
                for token in stream:
                    said += token.text
                    output.write_text(token.text)
            except GenerationCancelled:
                if not stop.asked.is_set():
                    raise  # cancelled by a server, not by the user
            finally:
                if said:
                    output.write_text("\n")
        if said:
            self.conversation.turns += [asked, Message("assistant", said)]
        return not stop.asked.is_set()

    def obey(self, line: str) -> None:
        """Run a command that begins with a slash. Raises `CoreError` and OSError."""
        name, _, rest = line.partition(" ")
        rest = rest.strip()
        if name in ("/save", "/load") and not rest:
            output.say(f"{name} requires a file name: {name} FILE")

        elif name == "/save":
            self.conversation.save(rest)
        elif name == "/load":
            self.conversation.load(rest)
            output.say(f"{output.counted(len(self.conversation.turns), 'message')}.")

        elif name == "/reset":
            self.conversation.turns.clear()
        elif name == "/system":
            self.conversation.turns.clear()
            self.conversation.system = rest or None

        else:
            output.say(_HELP if name == "/help" else f"Unknown command {name!r}.\n{_HELP}")


def _converse(talk: Talk) -> None:
    """Read and answer messages until the user leaves."""
    from core.errors import CoreError

    read = _reader()
    while (line := _next(read)) is not None:
        if line == "/exit":
            return
        try:
            if line.startswith("/"):
                talk.obey(line)
            elif line:
                talk.answer(line)
        except (CoreError, OSError) as error:
            output.say(f"Error: {exits.describe(error)}")


def _next(read: Callable[[], str]) -> str | None:
    """Return the next message; None at the end. Ctrl-C discards the current line."""
    while True:
        try:
            return read().strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            output.say("Type /exit or Ctrl-D to leave.")


def _reader() -> Callable[[], str]:
    """Return a function that reads a message of one or more lines, with history."""
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
        multiline=True,
        key_bindings=keys,
        prompt_continuation="  ",
        output=create_output(stream() if output.is_terminal() else sys.stderr),
    )
    return session.prompt
