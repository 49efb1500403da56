"""A model's tokenizer: text to token ids and back, and chat prompts.

Text from users cannot spell special tokens: ``<bos>`` in a prompt is five characters. Only a chat
template, through `core.RenderedPrompt`, writes special tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

from tokenizers import Tokenizer as Library

from core import validate
from core.errors import ChatTemplateError, InvalidModelError, TokenizerError
from core.kit.base import Check, never_stop
from core.kit.chat import RenderedPrompt, borrowed_format, continued, family_template
from core.kit.support import unicode_error
from core.kit.text_stream import StreamDetokenizer
from core.options import GenerateConfig
from core.types import Conversation
from core_runtime.chat.prompts import ChatPrompts
from core_runtime.checkpoint.fields import JsonFiles
from core_runtime.text.special_texts import SpecialTexts
from core_runtime.tokenizer.absorbed_space import AbsorbedSpace
from core_runtime.tokenizer.detokenizer import TokenBytes
from core_runtime.tokenizer.files import TokenizerFiles, read_tokenizer_files
from core_runtime.tokenizer.library import continuing_reader, prepends, prompt_reader
from core_runtime.tokenizer.templates import chosen_template
from core_runtime.tokenizer.text_bound import TextBound, text_bound
from core_runtime.tokenizer.word_cuts import can_cut, common_ends, last_cut

_SEVERAL = 3  # minimum of texts to search for common ends
_ID_LIMIT = 2**32  # the library's ids are 32-bit numbers


class Tokenizer:
    """The tokenizer of one model directory. Safe to use from several threads.

    ``special``: the texts of its special tokens. ``ends``: tokens that the post-processor adds
    after a text are kept.
    """

    ends = False

    def __init__(self, files: TokenizerFiles, template: str | None = None) -> None:
        self.library = prompt_reader(files.library, self.ends)
        self._skipped = int(
            prepends(files.library)
        )  # characters to skip in texts that start at a cut
        self._ids = _special_ids(files.library)

        self._no_chat, source = "", None
        try:
            source = chosen_template(files.templates, template)
        except ChatTemplateError as error:  # everything but chat still works
            self._no_chat = str(error)
        source = source or family_template(files.model_type, self._ids.keys())
        self._chat = ChatPrompts(source, files.special_texts, self._ids)
        self.borrowed_format = borrowed_format(source)
        self._beside = AbsorbedSpace(files.library)

        self._token_bytes = TokenBytes(files.library)
        self._texts: dict[int, str] = {}  # of requested tokens

        self.end_id = self._ids.get(files.special_texts.get("eos_token", ""))  # None: unknown
        self.special: tuple[str, ...] = tuple(self._ids)
        self.special_texts = SpecialTexts(self._ids)
        self.vocab_size: int = files.library.get_vocab_size(with_added_tokens=True)

    @classmethod
    def from_directory(
        cls, directory: Path, files: JsonFiles | None = None, template: str | None = None
    ) -> Self:
        """Read a model directory; ``files``: its JSON files, shared with the rest of the load.

        ``template``: the name of the chat template to use. Raises `TokenizerError` if
        tokenizer.json is missing or a file is broken, `ModelAccessError` if one is unreadable,
        `InvalidOptionError` for an unknown template.
        """
        return cls(read_tokenizer_files(directory, files, cls.ends), template)

    def fewest_tokens(self, text: str) -> int:
        """Return the minimum number of a text's tokens, from its bytes; 0 if unknown."""
        return self._bound.fewest_tokens(text)

    @cached_property
    def _bound(self) -> TextBound:
        return text_bound(self.library)  # a large vocabulary takes 0.3 s

    def encode(self, text: str) -> list[int]:
        """Return token ids, with the BOS that the model's post-processor adds.

        In a `core.RenderedPrompt`, special tokens written by its template are read as such, and no
        BOS is added to the template's own. Raises `RequestError` for lone surrogates.
        """
        if isinstance(text, RenderedPrompt):
            text = self._beside.without(text) if self._beside else text
            return self._chat.encode(text, self._between)
        return self._batch([text], add_special=True)[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode many texts; plain ones on all cores, without the GIL.

        A prefix and suffix shared by all of them is tokenised once, if that is exact.
        """
        plain = [text for text in texts if not isinstance(text, RenderedPrompt)]
        encoded = iter(self._plain(plain))
        return [
            next(encoded) if not isinstance(text, RenderedPrompt) else self.encode(text)
            for text in texts
        ]

    def encode_continued(self, prompt: str, continuations: Sequence[str]) -> list[list[int]]:
        """Return ``encode(prompt + continuation)`` for each continuation."""
        return self.encode_batch(continued(prompt, continuations, self.special))

    def last_cut(self, text: str) -> int:
        """Return the last index near a text's end from which the rest has its own tokens.

        This holds whatever text follows; 0 without such an index. If the library prepends a space
        to every text, the index is after the space that it replaces.
        """
        place = last_cut(text) if type(text) is str and self._cuts else 0
        return place and place + self._skipped

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of these ids, without special tokens and unknown ids.

        Raises `InvalidOptionError` for values that are not ids.
        """
        known = [index for index in validate.integers("ids", ids, 0) if index < _ID_LIMIT]
        return str(self.library.decode(known, skip_special_tokens=True))

    def token_text(self, id: int) -> str:
        """Return the text of one token by itself.

        Bytes that are not a complete character become U+FFFD.
        """
        if id not in self._texts:
            self._texts[id] = self._token_text(id)
        return self._texts[id]

    def _token_text(self, id: int) -> str:
        token = self.library.id_to_token(id) if id < _ID_LIMIT else None
        if token is None or token in self._ids:
            return token or ""
        # After another token: some decoders strip a leading space of the first token.
        decoder = self.library.decoder
        return str(decoder.decode(["a", token])[1:]) if decoder else token

    def detokenizer(self, prompt: Sequence[int]) -> StreamDetokenizer:
        """Return a stream of the text of tokens that continue a prompt."""
        return self._token_bytes.stream(prompt)

    def render_chat(
        self,
        messages: Conversation,
        check: Check = never_stop,
        config: GenerateConfig | None = None,
    ) -> RenderedPrompt:
        """Return the prompt of a chat; ``config`` has the template's options, ``check`` may raise.

        Raises `ChatTemplateError` if the model has no template, or its template fails or needs too
        much time or memory, `core.InvalidOptionError` for a variable that it never reads.
        """
        return self._rendered(messages, check, config)

    def render_said(self, messages: Conversation) -> RenderedPrompt:
        """Return a conversation up to its last message's end, without a prompt for another turn."""
        return self._rendered(messages, asks=False)

    def _rendered(
        self,
        messages: Conversation,
        check: Check = never_stop,
        config: GenerateConfig | None = None,
        *,
        asks: bool = True,
    ) -> RenderedPrompt:
        if self._no_chat:
            raise ChatTemplateError(self._no_chat)
        return self._chat.render(messages, check, config, asks=asks)

    def share(self) -> Self:
        """Return the same tokenizer for another model; each closes its own."""
        other = copy.copy(self)
        other._chat = copy.copy(self._chat)
        return other

    def close(self) -> None:
        """Release the chat renderer; everything else still works."""
        self._chat.close()

    @cached_property
    def _cuts(self) -> bool:
        return can_cut(self.library)  # a large vocabulary takes 0.1 s

    @cached_property
    def _continuing(self) -> Library:
        return continuing_reader(self.library)  # if it differs, a second or more

    def check_rows(self, rows: int, directory: Path) -> None:
        """Raise `core.InvalidModelError` if an embedding of this many rows lacks original tokens.

        Added tokens may have ids beyond it.
        """
        library = self.library
        if library.get_vocab_size(with_added_tokens=False) <= rows:
            return
        ids = library.get_vocab(with_added_tokens=False).values()
        if any(id >= rows for id in ids - library.get_added_tokens_decoder().keys()):
            raise InvalidModelError(
                f"{directory}: the tokenizer has {self.vocab_size} tokens, but the embedding only "
                f"{rows} rows, so they do not belong together. Download the model again."
            )

    def _plain(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of plain texts; common parts are encoded once and joined to the others."""
        begin, end = common_ends(texts) if len(texts) >= _SEVERAL and self._cuts else (0, 0)
        if not begin and not end:
            return self._batch(texts, add_special=True)

        first = texts[0]
        [head] = self._batch([first[:begin]], add_special=True)
        [tail] = self._from_cuts([first[len(first) - end :]])
        middles = [text[begin : len(text) - end] for text in texts]
        own = self._from_cuts(middles) if begin else self._batch(middles, add_special=False)
        return [head + ids + tail for ids in own]

    def _from_cuts(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of texts that are empty or start at a cut, which is a space."""
        if self._skipped:
            texts = [text[self._skipped :] for text in texts]
        return self._batch(texts, add_special=False)

    def _between(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of texts before, between and after the special tokens of a prompt."""
        if self._continuing is self.library:
            return self._batch(texts, add_special=False)
        [first] = self._batch(texts[:1], add_special=False)
        return [first, *self._batch(texts[1:], add_special=False, reader=self._continuing)]

    def _batch(
        self, texts: Sequence[str], *, add_special: bool, reader: Library | None = None
    ) -> list[list[int]]:
        reader = reader or self.library
        try:
            encodings = reader.encode_batch_fast(list(texts), add_special_tokens=add_special)
        except TypeError:  # the library's error for text that cannot be encoded as UTF-8
            for wrong in filter(None, map(unicode_error, texts)):
                raise wrong from None
            raise
        except BaseException as error:
            # Rust's panics are no Exceptions; its errors, as of a missing unk_token, have no class.
            if type(error).__name__ != "PanicException" and type(error) is not Exception:
                raise
            raise TokenizerError(
                f"The tokenizer library failed ({error!s:.200}): tokenizer.json is broken, or the "
                "process has run out of memory or threads. Close other models and retry."
            ) from None

        return [encoding.ids for encoding in encodings]


def _special_ids(library: Library) -> dict[str, int]:
    added = library.get_added_tokens_decoder()
    return {token.content: index for index, token in added.items() if token.special}
