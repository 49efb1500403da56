"""`FakeEncoder`: a fake that compares texts with label sentences, as an encoder does."""

from __future__ import annotations

import math
import re
import zlib
from functools import lru_cache
from typing import ClassVar

from core.errors import ChatTemplateError
from core.kit.chat import RenderedPrompt
from core.kit.labels import label_sentences, sentence_result
from core.options import GenerateConfig
from core.protocols import Capability
from core.testing import language
from core.testing.reading import CONTEXT_LENGTH, NAME, ReadingModel
from core.testing.script import Errors, Labels, Script
from core.types import ClassifyResult, Conversation

SCALE = 20.0  # of the cosine
ENCODING = frozenset(
    {
        *(Capability.LABELS, Capability.LABEL_SENTENCES, Capability.CLASSIFY_STREAMING),
        *(Capability.HIDDEN_STATES, Capability.TOKENIZING, Capability.DECLARING),
    }
)
_WORD = re.compile(r"\w+")


class FakeEncoder(ReadingModel):
    """A fake with `core.Capability.LABEL_SENTENCES`: it only reads, and has no next token.

    A label's score is 20 times the cosine of two embeddings: of the text, and of the label's
    sentence. An embedding, the hidden state of the only layer, counts words without case in 256
    numbers. ``labels`` replaces the scores: a function of text and labels, or a mapping from text,
    that gives a label, or the probability of each label. ``errors`` is as in `FakeModel`.
    """

    capabilities = ENCODING
    state_size: ClassVar[int] = 256

    def __init__(
        self,
        labels: Labels | None = None,
        *,
        errors: Errors | None = None,
        context_length: int = CONTEXT_LENGTH,
        name: str = NAME,
    ) -> None:
        super().__init__(Script("", labels, errors), context_length, "stop", name)
        self._scripted = labels is not None

    def declared(self) -> frozenset[Capability]:
        """Return the capabilities of every fake encoder."""
        return ENCODING

    def read(self, prompt: str, ids: list[int], request: GenerateConfig) -> ClassifyResult:
        """Return the labels' probabilities: the softmax of their scores."""
        labels = request.labels
        if self._scripted:
            shares = self._engine.script.shares(language.question(prompt), labels)
            likely = [shares.get(label, 0.0) for label in labels]
            return sentence_result(labels, [math.log(p) if p else -math.inf for p in likely])
        text = self.state(prompt, language.LAYERS)
        scores: list[float] = []
        for sentence in label_sentences(labels, request.label_sentence):
            self._engine.ids(sentence)  # raises for one that is too long
            pairs = zip(text, self.state(sentence, language.LAYERS), strict=True)
            scores.append(SCALE * sum(one * other for one, other in pairs))
        return sentence_result(labels, scores)

    def state(self, prompt: str, layer: int) -> list[float]:
        """Return the embedding, of length 1, or 0 without a word; in layer 0, of a character."""
        size = self.state_size
        if layer == 0:
            return [float(index == ord(prompt[-1]) % size) for index in range(size)]
        return [*_embedding(prompt, size)]

    def do_render_chat(self, messages: Conversation, request: GenerateConfig) -> RenderedPrompt:
        """Raise `core.ChatTemplateError`: an encoder has no conversations."""
        raise ChatTemplateError("FakeEncoder has no chat template: pass plain text.")


@lru_cache(maxsize=64)  # label sentences come with every text
def _embedding(text: str, size: int) -> tuple[float, ...]:
    values = [0.0] * size
    for word in _WORD.findall(text.casefold()):
        values[zlib.crc32(word.encode("utf-8", "surrogatepass")) % size] += 1.0
    length = math.hypot(*values) or 1.0
    return tuple(value / length for value in values)
