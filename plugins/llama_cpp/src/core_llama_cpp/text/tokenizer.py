"""A model's tokenizer: text to token ids and back, and chat prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from core import validate
from core.errors import ChatTemplateError, TokenizerError
from core.kit.base import Check, never_stop
from core.kit.chat import RenderedPrompt, borrowed_format, continued, family_template
from core.kit.text_stream import StreamDetokenizer
from core.models.gguf import GgufValue
from core.options import GenerateConfig
from core.types import Conversation
from core_llama_cpp.session import LlamaSession
from core_llama_cpp.text.templates import chosen_template
from core_llama_cpp.text.vocabulary import Vocabulary
from core_runtime.chat.prompts import ChatPrompts
from core_runtime.text.special_texts import SpecialTexts

_QUICK = 2**17  # characters that are tokenised quickly
_NAMES = ("bos", "eos", "pad")
_ENDS = "tokenizer.ggml.eos_token_ids"


class Tokenizer:
    """The tokenizer of one model. Safe to use from several threads.

    ``special``: texts of its special tokens; ``stop_ids``: tokens that end a generation.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        template: str | None,
        undecided: str = "",
        more_ends: frozenset[int] = frozenset(),
    ) -> None:
        """Make a tokenizer. ``undecided``: the reason if none of the templates could be chosen.

        ``more_ends``: tokens that end a generation in addition to the vocabulary's.
        """
        self.vocabulary, self._undecided = vocabulary, undecided
        self._ids = vocabulary.special
        self._names = {token_id: text for text, token_id in self._ids.items()}

        texts = {f"{name}_token": vocabulary.text(name) for name in _NAMES}
        variables = {name: text for name, text in texts.items() if text is not None}
        self._chat = ChatPrompts(template, variables, self._ids)
        self.borrowed_format = borrowed_format(template)
        self.special: tuple[str, ...] = tuple(self._ids)
        self.special_texts = SpecialTexts(self._ids)
        self.stop_ids = vocabulary.ends | more_ends
        self.vocab_size = vocabulary.size
        self._lead = [] if vocabulary.bos is None else [vocabulary.bos]
        self._bos = "" if vocabulary.bos is None else texts["bos_token"] or ""

    @classmethod
    def of(cls, session: LlamaSession, metadata: Mapping[str, GgufValue]) -> Tokenizer:
        """Make the tokenizer of a loaded model.

        Without a chat template in the file, its family's format is used. With several named ones
        and no default, chats are refused; other operations work. Raises `TokenizerError` for a
        broken list of end tokens.
        """
        vocabulary = Vocabulary(session.lib, session.vocab)
        template, undecided = chosen_template(metadata)
        if template is None and not undecided:
            family = str(metadata.get("general.architecture", ""))
            template = family_template(family, vocabulary.special.keys())
        return cls(vocabulary, template, undecided, _listed_ends(metadata, vocabulary.size))

    def encode(self, text: str) -> list[int]:
        """Return token ids, with the BOS that the model requires.

        In a `core.RenderedPrompt`, the special tokens of its template count, and no second BOS is
        added. Raises `RequestError` for lone surrogates.
        """
        if isinstance(text, RenderedPrompt):
            return self._chat.encode(self.vocabulary.stripped(text), self._plain)
        return self._lead + self.vocabulary.tokenize(text)

    def fewest_tokens(self, text: str) -> int:
        """Return a lower bound of a text's tokens; 0 if unknown, or for a short text."""
        if len(text) <= _QUICK:
            return 0
        read = self.vocabulary.stripped(text) if isinstance(text, RenderedPrompt) else text
        return self.vocabulary.fewest_tokens(read)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the same as `encode` for each text."""
        return [self.encode(text) for text in texts]

    def encode_continued(self, prompt: str, continuations: Sequence[str]) -> list[list[int]]:
        """Return ``encode(prompt + continuation)`` for each continuation."""
        return self.encode_batch(continued(prompt, continuations, self.special))

    def last_cut(self, text: str) -> int:
        """Return 0: llama.cpp does not show how it splits texts."""
        return 0

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of these ids, without special tokens and unknown ids.

        Raises `InvalidOptionError` for values that cannot be ids.
        """
        stream = self.detokenizer(())
        texts = [stream.add(token_id) for token_id in validate.integers("ids", ids, 0)]
        return "".join(texts) + stream.finish()

    def token_text(self, token_id: int) -> str:
        """Return the text of one token by itself.

        U+FFFD replaces bytes of incomplete characters.
        """
        name = self._names.get(token_id)
        return name or self.vocabulary.piece(token_id).decode(errors="replace")

    def detokenizer(self, prompt: Sequence[int]) -> StreamDetokenizer:
        """Return an incremental detokenizer for tokens that continue a prompt."""
        return StreamDetokenizer(self.vocabulary.text_bytes, prompt)

    def render_chat(
        self,
        messages: Conversation,
        check: Check = never_stop,
        config: GenerateConfig | None = None,
    ) -> RenderedPrompt:
        """Return the prompt of a chat; ``config`` has the template's options, ``check`` may raise.

        It begins with one BOS if the model requires it, whether or not its template writes it, as
        in llama.cpp's server. Raises `ChatTemplateError` if the model has no template, or several
        without a default, or if its template fails or takes too much time or memory,
        `core.InvalidOptionError` for a variable that it never reads.
        """
        if self._undecided:
            raise ChatTemplateError(self._undecided)
        prompt = self._chat.render(messages, check, config)
        if prompt.marked.startswith(self._bos):
            return prompt
        return RenderedPrompt(self._bos + prompt.marked, prompt.marker)

    def close(self, last: Callable[[], None]) -> None:
        """Close the vocabulary; ``last`` frees its model once it is not in use.

        See `Vocabulary.close`.
        """
        self._chat.close()
        self.vocabulary.close(last)

    def _plain(self, texts: list[str]) -> list[list[int]]:
        return [self.vocabulary.tokenize(text) if text else [] for text in texts]


def _listed_ends(metadata: Mapping[str, GgufValue], size: int) -> frozenset[int]:
    """Return the ids in a list that Ollama's converter writes but llama.cpp does not read."""
    listed = metadata.get(_ENDS, [])
    ids = listed if isinstance(listed, list) else [listed]
    if not all(isinstance(item, int) and 0 <= item < size for item in ids):
        raise TokenizerError(
            f"The model's {_ENDS} is {listed!r:.60}, not a list of ids below {size}. Convert the "
            "model again."
        )
    return frozenset(item for item in ids if isinstance(item, int))
