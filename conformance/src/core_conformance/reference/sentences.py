"""The reference of label sentences: hashed n-grams of tokens as embeddings, compared by cosine.

It has no next token, so that it declares few operations, and refuses the others.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from math import hypot
from operator import mul

from core.errors import RequestError, UnsupportedOptionError
from core.kit.labels import label_sentences, sentence_result
from core.kit.support import checked_layers, refuse_options
from core.options import GenerateConfig
from core.protocols import Capability
from core.types import ClassifyResult, HiddenResult, ModelInfo
from core_conformance.reference.backend import Reference
from core_conformance.reference.classification import Classifier
from core_conformance.reference.language import NUM_LAYERS, Language
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.weights import numbers

DIMENSIONS, SCALE, LONGEST = 32, 20.0, 3


@lru_cache(maxsize=8192)  # the checks ask the same texts alone, among others, and again
def embedding(ids: tuple[int, ...]) -> array[float]:
    """Return the sum of a vector for each n-gram of these ids, of length 1."""
    total = [0.0] * DIMENSIONS
    for size in range(1, LONGEST + 1):
        for start in range(len(ids) - size + 1):
            vector = numbers(ids[start : start + size], DIMENSIONS)
            total = [a + b - 1.0 for a, b in zip(total, vector, strict=True)]  # 1 is their mean
    length = hypot(*total)
    return array("f", [value / length for value in total])


class Embedding(Language):
    """An encoder; its hidden state is the embedding of the text."""

    def state(self, ids: Sequence[int], layer: int) -> array[float]:
        """Return the embedding of the ids."""
        return embedding(tuple(ids))


class SentenceClassifier(Classifier):
    """One call of ``classify`` on many texts."""

    def read(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        """Run one micro-batch; what is wrong with one text is the error of its own result."""
        return [self._read(prompt) for prompt in prompts]

    def _read(self, prompt: str) -> ClassifyResult:
        try:
            self._clock.check()
            ids = self._engine.prompt_ids(prompt)
            self._meter.prompt_tokens += len(ids)
            return self.compared(ids)
        except RequestError as error:
            return ClassifyResult(error=error)

    def compared(self, ids: Sequence[int]) -> ClassifyResult:
        """Return the result for a text: its embedding against those of the label sentences."""
        vector = self._engine.language.state(ids, NUM_LAYERS)
        scores = [SCALE * sum(map(mul, vector, other)) for other in self.embedded]
        return sentence_result(self.config.labels, scores)

    @cached_property
    def embedded(self) -> list[array[float]]:
        """The embeddings of the label sentences, once a call."""
        rows = map(self._engine.prompt_ids, self.sentences())
        return [self._engine.language.state(ids, NUM_LAYERS) for ids in rows]

    def sentences(self) -> list[str]:
        """Return the sentence of each label."""
        return label_sentences(self.config.labels, self.config.label_sentence)


class SentenceModel(ReferenceModel):
    """See `core.Capability.LABEL_SENTENCES`."""

    classifier_class: type[Classifier] = SentenceClassifier

    def refuse_unsupported(self, request: GenerateConfig, capability: Capability) -> None:
        """Raise for undeclared operations and options, those of sampling among them."""
        if capability not in self.capabilities | {Capability.CLASSIFY}:
            raise self.unsupported(capability)
        refuse_options(request, capability, self._backend, self.capabilities)

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        return replace(super().info, hidden_size=DIMENSIONS)

    def do_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> list[HiddenResult]:
        """Return the embedding of each text."""
        if checked_layers(layers, NUM_LAYERS) != (NUM_LAYERS,):
            raise UnsupportedOptionError("layers", "reference", "Leave it at the last layer, -1.")
        return super().do_hidden_states(prompts, request, layers)


class Sentences(Reference):
    """The backend ``reference`` with a model of label sentences."""

    everything = frozenset(
        {
            Capability.LABELS,
            Capability.LABEL_SENTENCES,
            Capability.CLASSIFY_STREAMING,
            Capability.HIDDEN_STATES,
            Capability.TOKENIZING,
            Capability.PARALLEL,
            Capability.ASYNCHRONOUS,
            Capability.DECLARING,
            Capability.EXPLAINING,
            Capability.MEMORY_REPORTING,
            Capability.MODEL_FINDING,
            Capability.MODEL_PROBE,
            Capability.DEVICE_REPORTING,
        }
    )
    model_class = SentenceModel
    language_class = Embedding
