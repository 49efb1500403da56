"""``infer-cli chat``: a conversation on a terminal, or one answer elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from core.sampling_options import SAMPLING_OPTIONS
from core.system.terminal import stream
from core_cli import exits, help, options, output

if TYPE_CHECKING:
    from prompt_toolkit.history import History

    from core.options import GenerateConfig
    from core.protocols import TextModel
    from core_cli.commands.conversation import Conversation

_HELP = """\
/help           show these lines
/reset          clear the conversation, but keep the system message
/system TEXT    clear the conversation and set the system message (none without TEXT)
/save FILE      save the conversation as a line of JSON, which generate -i can read
/load FILE      continue a saved conversation
/regenerate     answer the last message again
/forget         drop the oldest message and its answer
/set NAME VALUE set an option for later answers: temperature, top_p, max_tokens, seed ...
/exit           leave, like Ctrl-D
Enter sends, Alt-Enter (Esc, then Enter) starts a new line. Ctrl-C stops an answer."""


@click.command(
    cls=help.Command,
    epilog=help.examples("infer-cli chat -m MODEL", 'infer-cli chat -m MODEL "Name three rivers."'),
)
@click.argument("message", nargs=-1, metavar="[MESSAGE]...")
@options.model_option
@click.option("-s", "--system", help="System message for the conversation.")
@options.template_options
@options.answer_options("to the end of the context, or 256 with a server")
@options.sampling_options
@options.load_options
@click.option(
    "--forget",
    is_flag=True,
    help="Drop the oldest messages when the conversation exceeds the context. [default: report it]",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Report the backend and settings chosen, with reasons, on stderr.",
)
def chat(message: tuple[str, ...], forget: bool, **given: Any) -> None:
    """Chat with a model.

    On a terminal, type /help for commands. With MESSAGE or stdin input, prints one answer and
    exits.
    """
    from core.models.files import is_address
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
        if flags.max_tokens is None and not is_address(model_name):  # servers refuse too many
            config = replace(config, max_tokens=model.info.context_length)
        talk = Talk(model, config, Conversation(flags.system), flags.opening or "", forget)
        if not text and sys.stdin.isatty():
            name = os.path.basename(model_name.rstrip("/"))
            output.say(f"Chatting with {name} ({loaded.backend.name}). /help lists the commands.")
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


@dataclass(slots=True)
class Talk:
    """A model and its conversation; each answer begins with ``opening``.

    With ``forget``, the oldest messages are dropped when the conversation exceeds the context.
    """

    model: TextModel
    config: GenerateConfig
    conversation: Conversation
    opening: str = ""
    forget: bool = False

    def answer(self, text: str) -> bool:
        """Stream the answer to a message and keep both; return False if Ctrl-C ended it.

        An interrupted answer is kept. A message is dropped if it fails, has an empty answer, or
        is cancelled by the model's side. Raises `CoreError`.
        """
        from core.errors import PromptTooLongError

        before, dropped = [*self.conversation.turns], 0
        while True:
            try:
                whole = self._answer(text)
                break
            except PromptTooLongError:
                if not self.forget or not self.conversation.turns:
                    self.conversation.turns = before  # the message alone is too long
                    raise
                dropped += self.conversation.drop_oldest()
        if dropped:
            output.say(f"(the oldest {output.counted(dropped, 'message')} no longer fit)")
        return whole

    def _answer(self, text: str) -> bool:
        from core.errors import GenerationCancelled
        from core.types import Message
        from core_cli.interrupts import Stop, noted

        user_message, reply, stop = Message("user", text), self.opening, Stop()
        begun = [Message("assistant", reply)] if reply else []
        config = replace(self.config, cancel=stop.asked, continue_final_message=bool(begun))
        messages = self.conversation.messages(user_message, *begun)
        with noted(stop), closing(self.model.chat(messages, config)) as stream:
            try:
                output.write_text(reply)
                for token in stream:
                    reply += token.text
                    output.write_text(token.text)
            except GenerationCancelled:
                if not stop.asked.is_set():
                    raise  # cancelled by a server, not by the user
            finally:
                if reply:
                    output.write_text("\n")
        if reply:
            self.conversation.turns += [user_message, Message("assistant", reply)]
        if stream.finish_reason == "length":
            output.say(self._cut(config, stream.metrics.generated_tokens))
        return not stop.asked.is_set()

    def _cut(self, config: GenerateConfig, tokens: int) -> str:
        """Return a note for an answer that did not end by itself."""
        if tokens >= config.max_tokens:
            return f"(cut after {tokens} tokens; -n or /set max_tokens allows more)"
        length = self.model.info.context_length
        return f"(cut: the context of {length} tokens is full; /forget or /reset makes room)"

    def obey(self, line: str) -> None:
        """Run a command that begins with a slash. Raises `CoreError` and OSError."""
        name, _, rest = line.partition(" ")
        rest = rest.strip()
        if name in ("/save", "/load") and not rest:
            output.say(f"{name} requires a file name: {name} FILE")

        elif name == "/save":
            self.conversation.save(rest)
            output.say(f"Saved to {rest}.")
        elif name == "/load":
            self.conversation.load(rest)
            output.say(f"{output.counted(len(self.conversation.turns), 'message')}.")

        elif name == "/reset":
            self.conversation.turns.clear()
            output.say("The conversation is empty.")
        elif name == "/system":
            self.conversation.turns.clear()
            self.conversation.system = rest or None
            output.say(
                "New conversation, " + ("system message set." if rest else "no system message.")
            )

        elif name == "/regenerate":
            self._regenerate()
        elif name == "/forget":
            count = self.conversation.drop_oldest()
            left = output.counted(len(self.conversation.turns), "message")
            output.say(f"Dropped {output.counted(count, 'message')}; {left} left.")
        elif name == "/set":
            self._set(rest)

        else:
            output.say(_HELP if name == "/help" else f"Unknown command {name!r}.\n{_HELP}")

    def _regenerate(self) -> None:
        before = [*self.conversation.turns]
        question = self.conversation.take_last()
        if question is None:
            output.say("/regenerate needs an earlier answer.")
            return
        try:
            self.answer(question.content)
        except BaseException:
            self.conversation.turns = before
            raise

    def _set(self, text: str) -> None:
        """Set an option from ``NAME VALUE``. Raises `OptionError` for a wrong value."""
        from core_cli.flags import value_of

        name, _, value = text.partition(" ")
        known = ("max_tokens", *(option.name for option in SAMPLING_OPTIONS))
        if name not in known or not value.strip():
            output.say(
                f"/set requires a name and a value: /set NAME VALUE. Names: {', '.join(known)}"
            )
            return
        option: dict[str, Any] = {name: value_of(value.strip())}
        self.config = replace(self.config, **option)
        output.say(f"{name} is {option[name]}.")


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
        history=_history(),
        multiline=True,
        key_bindings=keys,
        prompt_continuation="  ",
        output=create_output(stream() if output.is_terminal() else sys.stderr),
    )
    return session.prompt
