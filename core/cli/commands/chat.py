"""``infer-cli chat``: a conversation on a terminal, or one answer where there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from core.cli import exits, output, settings
from core.system.stdout import stream

if TYPE_CHECKING:
    from core.cli.commands.conversation import Conversation
    from core.options import GenerateConfig
    from core.protocols import TextModel

_HELP = """\
/help           these lines
/reset          forget what was said; the system message stays
/system TEXT    begin anew with this system message; without TEXT, with none
/save FILE      write the conversation, as a line of JSON that generate -i reads
/load FILE      go on with one
/exit           leave, as Ctrl-D does
Enter sends, Alt-Enter (Esc, then Enter) begins a new line. Ctrl-C stops an answer."""


@click.command()
@click.argument("message", nargs=-1, metavar="[MESSAGE]...")
@settings.model_option
@click.option("-s", "--system", help="A system message.")
@settings.template_options
@settings.answer_options
@settings.sampling_options
@settings.load_options
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what was chosen, and why.")
def chat(**flags: Any) -> None:
    """Talk with a model.

    On a terminal, /help lists what can be typed. With a MESSAGE, or one on stdin, it gives one
    answer and ends.
    """
    from core.cli.commands.conversation import Conversation
    from core.cli.loading import explain, load
    from core.protocols import Capability

    settings.need_model(flags)
    config = settings.answer_config(flags)
    message = " ".join(flags["message"])
    loaded = load(flags["model"], settings.load_config(flags), Capability.CHAT)
    with loaded.model as model:
        if flags["verbose"]:
            explain(loaded)
        talk = Talk(model, config, Conversation(flags["system"]), flags["opening"] or "")
        if not message and sys.stdin.isatty():
            _converse(talk)
        elif not talk.answer(message or _piped()):
            raise KeyboardInterrupt


def _piped() -> str:
    text = sys.stdin.read().removeprefix("\ufeff").rstrip("\r\n")
    if not text:
        raise click.UsageError("No message. Give one as an argument, on stdin, or on a terminal.")
    return text


@dataclass(frozen=True, slots=True)
class Talk:
    """A model, and what was said with it; each answer begins with ``opening``."""

    model: TextModel
    config: GenerateConfig
    conversation: Conversation
    opening: str = ""

    def answer(self, text: str) -> bool:
        """Write the answer to a message as it comes, and keep both; False if Ctrl-C ended it.

        What was said until then is kept. Of a message that fails, or that is answered by nothing,
        nothing is, and of one that the model's side cancels, neither. Raises `CoreError`.
        """
        from core.cli.interrupts import Stop, noted
        from core.errors import GenerationCancelled
        from core.types import Message

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
                    raise  # a server's word, and not the user's
            finally:
                if said:
                    output.write_text("\n")
        if said:
            self.conversation.turns += [asked, Message("assistant", said)]
        return not stop.asked.is_set()

    def obey(self, line: str) -> None:
        """Do what a line that begins with a slash says. Raises `CoreError` and OSError."""
        name, _, rest = line.partition(" ")
        rest = rest.strip()
        if name in ("/save", "/load") and not rest:
            output.say(f"{name} needs a FILE.")

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
            output.say(_HELP if name == "/help" else f"There is no {name}.\n{_HELP}")


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
    """The next message; None at the end. Ctrl-C forgets the line that it is typed in."""
    while True:
        try:
            return read().strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            output.say("/exit or Ctrl-D leaves.")


def _reader() -> Callable[[], str]:
    """Reads a message of one or several lines, with the history of this conversation."""
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
