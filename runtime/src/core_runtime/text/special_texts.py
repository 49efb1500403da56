"""Special tokens by their texts: tokens that end a generation, and tokens spelled in prompts.

A plain prompt that spells one is read as plain text, with a warning once per model. A stop string
that spells one also matches the token itself.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from core.kit.chat import RenderedPrompt

# The end of a turn or a text in known families, whatever the files say: many checkpoints name only
# one of several. <|endoftext|> may also be the BOS, the pad or the unknown token (GPT-2, Qwen,
# SmolLM2), but it separates documents in training, so a model that writes it has reached the end.
# As the BOS of a prompt it does no harm: only generated tokens are checked.
END_MARKS = (
    "<end_of_turn>",  # Gemma
    "<|eot_id|>",  # Llama 3
    "<|eom_id|>",  # Llama 3.1, before it waits for a tool
    "<|im_end|>",  # ChatML: Qwen, SmolLM
    "<|endoftext|>",
    "<｜end▁of▁sentence｜>",  # noqa: RUF001 - DeepSeek spells it with these characters
)
_LOG = logging.getLogger("core_runtime")
_HEAD = 3  # first characters to search for: thousands of tokens share a few


class SpecialTexts:
    """A model's special tokens, ids by text. Safe to use from several threads.

    Plain prompts are checked until one spells a special token.
    """

    def __init__(self, special: Mapping[str, int]) -> None:
        self._ids = dict(special)
        # The texts for the last stop strings.
        self._named: tuple[tuple[str, ...], dict[int, str]] = ((), {})
        self._tokens = [token for token in special if len(token) > 1]
        self._firsts = {token[0] for token in self._tokens}
        self._logged = not self._tokens

    def named(self, stops: tuple[str, ...]) -> Mapping[int, str]:
        """Return the texts, by id, of the special tokens within these stop strings."""
        known, spelled = self._named
        if known != stops:
            ids = self._ids.items()
            spelled = {id: text for text, id in ids if any(text in stop for stop in stops)}
            self._named = stops, spelled  # all rows of a call have the same
        return spelled

    def look(self, prompt: str) -> None:
        """Log a warning for the first prompt that spells a special token."""
        if self._logged or isinstance(prompt, RenderedPrompt):
            return

        token = self._spelled(prompt)
        if token is not None:
            self._logged = True
            _LOG.warning(
                "A prompt spells the special token %r, which is read as plain text. Use chat() for "
                "a conversation; where special tokens are meant, give core.RenderedPrompt(prompt). "
                "This is said once for each model.",
                token,
            )

    def _spelled(self, prompt: str) -> str | None:
        for first in self._firsts:  # usually none is found
            if first in prompt:
                break
        else:
            return None

        heads, by_head = self._heads
        for match in heads.finditer(prompt):
            for token in by_head[match[0]]:
                if prompt.startswith(token, match.start()):
                    return token
        return None

    @cached_property
    def _heads(self) -> tuple[re.Pattern[str], dict[str, list[str]]]:
        by_head = defaultdict(list)
        for token in self._tokens:
            by_head[token[:_HEAD]].append(token)
        longest_first = sorted(by_head, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first))), dict(by_head)
