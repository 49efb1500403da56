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
from core_cli import exits, help, options, output

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core.protocols import TextModel
    from core.types import Message
    from core_cli.commands.conversation import Conversation
    from core_cli.commands.display import Display
    from core_cli.loading import Loaded

_HELP = """\
/help           show these lines
/reset          clear the conversation, but keep the system message
/system TEXT    clear the conversation and set the system message (none without TEXT)
/save FILE      save the conversation as a line of JSON, which generate -i can read
/load FILE      continue a saved conversation
/regenerate     answer the last message again
/edit           edit the last message and send it again
/model MODEL    continue the conversation with another model (without MODEL: show this one)
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
    "--hide-thinking",
    is_flag=True,
    help="Do not show the thoughts of a model that marks them. [default: dimmed on a terminal]",
)
@options.verbose_option
def chat(message: tuple[str, ...], forget: bool, hide_thinking: bool, **given: Any) -> None:
    """Chat with a model.

    On a terminal, type /help for commands. With MESSAGE or stdin input, prints one answer and
    exits.
    """
    from core.protocols import Capability
    from core_cli.commands.conversation import Conversation
    from core_cli.flags import SamplingFlags
    from core_cli.loading import explain, load

    flags = SamplingFlags(**given)
    model_name, config, text = flags.need_model(), flags.answer_config(), " ".join(message)
    converses = not text and sys.stdin.isatty()

    def opened(name: str) -> TextModel:
        loaded = load(name, flags.load_config(), Capability.CHAT)
        if flags.verbose:
            explain(loaded)
        if converses:
            shown = os.path.basename(name.rstrip("/"))
            output.say(f"Chatting with {shown} ({loaded.backend.name}). /help lists the commands.")
        _note_borrowed_format(loaded)
        return loaded.model

    with closing(Talk(opened(model_name), config, Conversation(flags.system))) as talk:
        talk.opening, talk.forget, talk.hides_thoughts = flags.opening or "", forget, hide_thinking
        talk.load, talk.fills_context = opened, flags.max_tokens is None
        talk.use(model_name, talk.model)
        if converses:
            _converse(talk)
        elif not talk.answer(text or _piped()):
            raise KeyboardInterrupt


def _note_borrowed_format(loaded: Loaded) -> None:
    for choice in loaded.choices():
        if choice.name == "chat_template":
            output.say(f"Note: {choice.reason}; the chat format of {choice.value} is used.")


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

    With ``forget``, the oldest messages are dropped when the conversation exceeds the context. With
    ``fills_context``, an answer may be as long as the context. ``load`` loads another model, and
    ``draft`` is the text that the next message begins with.
    """

    model: TextModel
    config: GenerateConfig
    conversation: Conversation
    opening: str = ""
    forget: bool = False
    hides_thoughts: bool = False
    fills_context: bool = False
    load: Callable[[str], TextModel] | None = None
    name: str = ""
    draft: str = ""

    def close(self) -> None:
        """Close the model."""
        self.model.close()

    def use(self, name: str, model: TextModel) -> None:
        """Continue the conversation with this model."""
        from core.models.files import is_address

        self.name, self.model = name, model
        if self.fills_context and not is_address(name):  # servers refuse too many
            self.config = replace(self.config, max_tokens=model.info.context_length)

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
        shown = self._display(messages, config)
        with noted(stop), closing(self.model.chat(messages, config)) as stream:
            try:
                output.write_text(reply)
                for token in stream:
                    reply += token.text
                    shown.write(token.text)
            except GenerationCancelled:
                if not stop.asked.is_set():
                    raise  # cancelled by a server, not by the user
            finally:
                shown.end()
                if reply:
                    output.write_text("\n")
        if reply:
            self.conversation.turns += [user_message, Message("assistant", reply)]
        if stream.finish_reason == "length":
            output.say(self._cut(config, stream.metrics.generated_tokens))
        return not stop.asked.is_set()

    def _display(self, messages: list[Message], config: GenerateConfig) -> Display:
        """Return what shows the answer to these messages; ``messages`` may end within thoughts."""
        from core.extensions import Tokenizing
        from core.rendering import open_thoughts
        from core_cli.commands.display import Display

        is_open = None
        if isinstance(self.model, Tokenizing) and (self.hides_thoughts or output.is_terminal()):
            is_open = open_thoughts(self.model.render_chat(messages, config), messages)
        return Display(
            is_open[1] if is_open else None,
            begun=bool(self.opening),
            hides_thoughts=self.hides_thoughts,
        )

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
        elif name == "/edit":
            message = self.conversation.take_last()
            self.draft = message.content if message else ""
        elif name == "/model":
            self._switch(rest)
        elif name == "/set":
            self._set(rest)

        else:
            output.say(_HELP if name == "/help" else f"Unknown command {name!r}.\n{_HELP}")

    def _switch(self, name: str) -> None:
        """Continue with another model; this one is kept if it cannot be loaded."""
        if name and self.load is not None:
            former, model = self.model, self.load(name)
            self.use(name, model)
            former.close()
        else:
            output.say(f"The model is {self.name}. /model MODEL continues with another one.")

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
    from core.errors import CoreError, PromptTooLongError
    from core_cli.commands import prompting

    read = prompting.reader()
    while (line := prompting.next_message(read, talk.draft)) is not None:
        talk.draft = ""
        if line == "/exit":
            return
        try:
            if line.startswith("/"):
                talk.obey(line)
            elif line:
                talk.answer(line)
        except PromptTooLongError as error:
            output.say(f"Error: {exits.describe(error)} /forget or /reset makes room.")
        except (CoreError, OSError) as error:
            output.say(f"Error: {exits.describe(error)}")
