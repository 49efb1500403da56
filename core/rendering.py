"""Chat prompts of one model, and the check that no label is read within its thoughts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from core.errors import ChatTemplateError, InvalidOptionError, UnsupportedOptionError
from core.extensions import Tokenizing
from core.messages import checked_conversation
from core.options import GenerateConfig
from core.types import Conversation

SWITCHES = ("enable_thinking", "thinking")
"""Variables with which templates turn thinking on and off: Qwen's and most others', DeepSeek's."""
THOUGHTS = (
    ("<think>", "</think>"),  # Qwen, DeepSeek, GLM, Nemotron, SmolLM3, Granite
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),  # EXAONE Deep
    ("[THINK]", "[/THINK]"),  # Magistral
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),  # Kimi
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A
    ("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ("<|channel>thought", "<channel|>"),  # Gemma 4
    ("<|channel|>analysis", "<|end|>"),  # gpt-oss
)
"""The marks around the thoughts of a model, by family."""


class Rendering:
    """A function from conversations to prompts, callable from several threads.

    ``config`` has the options for the template, ``opening`` is the response prefix. With ``labels``
    a label is read after the prompt: a thinking switch that the template reads, and that the
    caller did not set, is turned off, and a prompt that ends within thoughts is an error.
    """

    def __init__(
        self,
        model: Tokenizing,
        config: GenerateConfig | None = None,
        opening: str = "",
        *,
        labels: bool = False,
    ) -> None:
        self._model, self._opening, self._labels = model, opening, labels
        self._config = config or GenerateConfig()
        self._known = not labels or any(name in self.variables for name in SWITCHES)

    @property
    def variables(self) -> Mapping[str, object]:
        """The variables that are passed to the template; complete after the first prompt."""
        return self._config.chat_template_kwargs or {}

    def __call__(self, messages: Conversation, opening: str | None = None) -> str:
        """Return the prompt of a conversation; ``opening`` overrides the usual one.

        Raises like ``render_chat``, and `ChatTemplateError` if no label can be read.
        """
        if not self._known:
            self._config, self._known = self._without_thoughts(messages), True
        opening = self._opening if opening is None else opening
        prompt = self._model.render_chat(messages, self._config) + opening
        block = open_thoughts(prompt, messages) if self._labels else None
        if block is not None:
            raise ChatTemplateError(_reason(*block, self.variables))
        return prompt

    def _without_thoughts(self, messages: Conversation) -> GenerateConfig:
        """Return the config with each thinking switch that the template reads turned off."""
        config = self._config
        for name in SWITCHES:
            variables = {**(config.chat_template_kwargs or {}), name: False}
            switched = replace(config, chat_template_kwargs=variables)
            try:
                self._model.render_chat(messages, switched)
            except UnsupportedOptionError:  # the caller's own options are refused below
                break
            except InvalidOptionError as error:
                if error.value != name:
                    raise
            else:
                config = switched
        return config


def open_thoughts(prompt: str, messages: Conversation) -> tuple[str, str] | None:
    """Return the marks of the block of thoughts in which a prompt ends, or None.

    Users may write such marks as well, so only the text after their last message counts.
    """
    turns, start = checked_conversation(messages), 0
    while turns and turns[-1].role == "assistant":
        turns.pop()
    for turn in turns:
        content = turn.content.strip()
        position = prompt.find(content, start)
        start = start if position < 0 else position + len(content)
    tail = prompt[start:]
    return next((pair for pair in THOUGHTS if tail.rfind(pair[0]) > tail.rfind(pair[1])), None)


def _reason(begin: str, end: str, variables: Mapping[str, object]) -> str:
    switch = next((name for name in SWITCHES if variables.get(name)), None)
    flag = "--no-thinking, " if switch == SWITCHES[0] else ""
    turn_off = f"Turn thinking off ({flag}chat_template_kwargs={{{switch!r}: False}}), or end"
    return (
        f"No label can be read here: the prompt ends within the model's thoughts ({begin}). "
        f"{'End' if switch is None else turn_off} them with a response prefix, such as "
        f"--opening {end!r}."
    )
