"""A model's tokenizer: text to token ids and back, and chat prompts.

Text from users cannot spell special tokens: ``<bos>`` in a prompt is five characters. Only a chat
template, through `core.RenderedPrompt`, writes special tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer as Library

from core import validate
from core.chat import RenderedPrompt, continued
from core.chat_formats import family_template
from core.chat_prompts import ChatPrompts
from core.support import unicode_error
from core.types import Message
from core_mlx_native.detokenizer import StreamDetokenizer, TokenBytes
from core_mlx_native.tokenizer_files import TokenizerFiles, read_tokenizer_files

_ID_LIMIT = 2**32  # the library's ids are 32-bit numbers


class Tokenizer:
    """The tokenizer of one model directory. Safe to use from several threads.

    ``special``: the texts of its special tokens.
    """

    def __init__(self, files: TokenizerFiles) -> None:
        self.library = _plain_text_reader(files.library)
        self._ids = _special_ids(files.library)
        template = files.chat_template or family_template(files.model_type, self._ids.keys())
        self._chat = ChatPrompts(template, files.special_texts, self._ids)
        self._token_bytes = TokenBytes(files.library)
        self._texts: dict[int, str] = {}  # of tokens that were asked for
        self.special: tuple[str, ...] = tuple(self._ids)
        self.vocab_size: int = files.library.get_vocab_size(with_added_tokens=True)
        self.bos_id: int | None = files.bos_id

    @classmethod
    def from_directory(cls, directory: Path) -> Tokenizer:
        """Read a model directory.

        Raises `TokenizerError` when tokenizer.json is missing or any of its files is broken,
        `ModelAccessError` when one may not be read.
        """
        return cls(read_tokenizer_files(directory))

    def encode(self, text: str) -> list[int]:
        """Token ids, with the BOS that the model's post-processor adds.

        In a `core.RenderedPrompt`, what its template wrote as special tokens is read as such, and
        no BOS is added to the template's own. Raises `RequestError` for lone surrogates.
        """
        if isinstance(text, RenderedPrompt):
            return self._chat.encode(text, self._pieces)
        return self._batch([text], add_special=True)[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts; plain ones on all cores, without the GIL."""
        plain = [text for text in texts if not isinstance(text, RenderedPrompt)]
        encoded = iter(self._batch(plain, add_special=True))
        return [
            next(encoded) if not isinstance(text, RenderedPrompt) else self.encode(text)
            for text in texts
        ]

    def encode_continued(self, prompt: str, continuations: Sequence[str]) -> list[list[int]]:
        """``encode(prompt + continuation)`` for each continuation."""
        return self.encode_batch(continued(prompt, continuations, self.special))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these ids, special tokens left out, unknown ids too.

        Raises `InvalidOptionError` for what is no id at all.
        """
        known = [index for index in validate.integers("ids", ids, 0) if index < _ID_LIMIT]
        return str(self.library.decode(known, skip_special_tokens=True))

    def token_text(self, id: int) -> str:
        """One token's own text; U+FFFD stands for bytes that are no whole character."""
        if id not in self._texts:
            self._texts[id] = self._token_text(id)
        return self._texts[id]

    def _token_text(self, id: int) -> str:
        token = self.library.id_to_token(id)
        if token is None or token in self._ids:
            return token or ""
        # Behind another token: some decoders strip the space that a first one begins with.
        decoder = self.library.decoder
        return str(decoder.decode(["a", token])[1:]) if decoder else token

    def detokenizer(self, prompt: Sequence[int]) -> StreamDetokenizer:
        """The text of tokens that continue a prompt, as they come."""
        return StreamDetokenizer(self._token_bytes, prompt)

    def render_chat(self, messages: Sequence[Message]) -> RenderedPrompt:
        """The prompt that asks for the assistant's next turn.

        Raises `ChatTemplateError` when the model has no template or its template fails.
        """
        return self._chat.render(messages)

    def _pieces(self, texts: list[str]) -> list[list[int]]:
        return self._batch(texts, add_special=False)

    def _batch(self, texts: Sequence[str], *, add_special: bool) -> list[list[int]]:
        try:
            found = self.library.encode_batch_fast(list(texts), add_special_tokens=add_special)
        except TypeError:  # what the library says of anything that has no UTF-8 form
            for wrong in filter(None, map(unicode_error, texts)):
                raise wrong from None
            raise
        return [encoding.ids for encoding in found]


def _plain_text_reader(library: Library) -> Library:
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True  # special tokens in a text are plain text
    return library


def _special_ids(library: Library) -> dict[str, int]:
    added = library.get_added_tokens_decoder()
    return {token.content: index for index, token in added.items() if token.special}
