"""Prompts as token ids, by the server's tokenizer, and ids as text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from core import validate
from core.errors import ChatTemplateError, CoreError, PromptTooLongError, RequestError
from core.kit.chat import RenderedPrompt, continued, refuse_names, render
from core.kit.text_stream import StreamDetokenizer
from core.types import Message
from core_remote.failures import ServerError
from core_remote.llama_cpp.server import LlamaServer
from core_remote.llama_cpp.vocabulary import ServerVocabulary

_QUESTION, _ANSWER = "Hello", "Good morning"


class Tokenizer:
    """A model's tokenizer. ``limit``: tokens that a prompt may have.

    ``bos_text``: the beginning of a chat if the model requires a BOS. The server prepends the id
    itself, whether or not the template writes one, and omits it from rendered prompts.
    """

    def __init__(
        self, server: LlamaServer, vocabulary: ServerVocabulary, limit: int, bos_text: str
    ) -> None:
        self._server, self.vocabulary = server, vocabulary
        self.limit, self._bos_text = limit, bos_text
        self._prefills: bool | None = None

    async def encode(self, text: str) -> list[int]:
        """Return the ids of a prompt, with the BOS that the model requires.

        In a `core.RenderedPrompt`, the special tokens of its template count, and no second BOS is
        added.
        """
        if not isinstance(text, RenderedPrompt):
            if not text:
                return list(self.vocabulary.lead.bos)
            return await self._server.tokenize(text, add_special=True)
        parts = self._parts(text)
        return await self._server.tokenize(parts, add_special=False) if parts else []

    async def encode_continued(self, prompt: str, texts: Sequence[str]) -> list[list[int]]:
        """Return ``encode(prompt + text)`` for each text."""
        whole = continued(prompt, texts, tuple(self.vocabulary.special))
        return await asyncio.gather(*map(self.encode, whole))

    async def encode_alone(self, text: str) -> list[int]:
        """Return the ids of a text without a BOS."""
        return await self._server.tokenize(text, add_special=False)

    async def prompt(self, text: str) -> list[int]:
        """Return the same as `encode`. Raises `PromptTooLongError`."""
        return self.fitting(await self.encode(text))

    def fitting(self, ids: Sequence[int]) -> list[int]:
        """Return the ids. Raises `PromptTooLongError`, and for an id outside the vocabulary."""
        if len(ids) > self.limit:
            raise PromptTooLongError(len(ids), self.limit)
        wrong = next((id for id in ids if not 0 <= id < self.vocabulary.size), None)
        if wrong is not None:
            size = self.vocabulary.size
            raise RequestError(f"Unknown token id {wrong}: the model has {size} tokens.")
        return list(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids, without special tokens and unknown ids."""
        stream = self.detokenizer()
        texts = [stream.add(token_id) for token_id in validate.integers("ids", ids, 0)]
        return "".join(texts) + stream.finish()

    def text(self, token_id: int) -> str:
        """Return the text of one token by itself."""
        return self.vocabulary.pieces[token_id].decode(errors="replace")

    def detokenizer(self, prompt: Sequence[int] = ()) -> StreamDetokenizer:
        """Return an incremental detokenizer for tokens that continue a prompt."""
        return StreamDetokenizer(self.vocabulary.bytes_of, prompt)

    async def render_chat(self, turns: Sequence[Message]) -> RenderedPrompt:
        """Return the prompt for the assistant's next turn.

        Special tokens in messages are literal text. Raises `core.ChatTemplateError`, also if the
        server would continue the assistant's last message.
        """
        if turns[-1].role == "assistant" and await self._goes_on():
            raise ChatTemplateError(
                "The conversation ends with an assistant message, which this server would continue "
                "instead of answering. Start the server with --no-prefill-assistant, or end with "
                "another role."
            )
        safe: list[Message] = []

        def keep(messages: Sequence[Message]) -> str:
            safe[:] = safe or messages
            return "".join(f"{message.name}" for message in messages)

        marker = render(turns, self.vocabulary.special, keep).marker
        prompt = await self._applied(safe)
        for place, turn in enumerate(turns):
            if turn.name is not None:
                unnamed = replace(safe[place], name=None)
                if await self._applied([*safe[:place], unnamed, *safe[place + 1 :]]) == prompt:
                    refuse_names([turn])
        if prompt.startswith(self._bos_text):
            return RenderedPrompt(prompt, marker)
        return RenderedPrompt(self._bos_text + prompt, marker)

    async def _applied(self, turns: Sequence[Message]) -> str:
        """Return the messages rendered by the server. Raises `core.ChatTemplateError`."""
        try:
            return await self._server.apply_template([turn.to_dict() for turn in turns])
        except RequestError as error:
            raise ChatTemplateError(str(error)) from None
        except ServerError as error:
            raise _of_template(error) from None

    async def _goes_on(self) -> bool:
        """Return whether the server leaves the assistant's last message open."""
        if self._prefills is None:
            turns = [("user", _QUESTION), ("assistant", _ANSWER)]
            messages = [{"role": role, "content": content} for role, content in turns]
            prompt = await self._server.apply_template(messages)
            self._prefills = prompt.rstrip().endswith(_ANSWER)
        return self._prefills

    def _parts(self, prompt: RenderedPrompt) -> list[str | int]:
        """Return literal texts, with the ids of special tokens between them."""
        marks = self.vocabulary.marks
        texts = marks.split(prompt.marked) if marks else [prompt.marked]
        parts: list[str | int] = []
        for place, part in enumerate(texts):
            plain = part.replace(prompt.marker, "")
            if place % 2:
                parts.append(self.vocabulary.special[part])
            elif plain:
                parts.append(plain)
        return parts


def _of_template(error: ServerError) -> CoreError:
    """Return the error of a template that fails, which the server reports with status 500."""
    return ChatTemplateError(str(error)) if error.status == 500 else error
