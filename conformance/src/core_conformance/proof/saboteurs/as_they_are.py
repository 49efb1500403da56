"""Saboteurs that rewrite what they are given: ids, line ends, labels, chats, or a config.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from unicodedata import normalize

from core.errors import CoreError
from core.kit.chat import RenderedPrompt
from core.models.files import read_config_json
from core.options import GenerateConfig
from core.types import DiscoveredModel, Message
from core_conformance.proof.registry import saboteur
from core_conformance.reference.backend import Reference
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, GivenIds
from core_conformance.reference.files import MODEL_TYPE
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.sentences import SentenceClassifier
from core_conformance.reference.vocabulary import BOS, EOS


@saboteur("one-bos", "ids that begin with two BOS lose one of them")
class OneBos(Engine):
    """Repairs what a chat template and a tokenizer have both added."""

    def prompt_ids(self, prompt: str) -> list[int]:
        """Return the ids of a prompt, with one BOS."""
        ids = super().prompt_ids(prompt)
        return ids[1:] if isinstance(prompt, GivenIds) and ids[:2] == [BOS, BOS] else ids


@saboteur("encode-rewrites-line-ends", "encode() reads CRLF as LF, and no operation does")
class EncodeRewritesLineEnds(ReferenceModel):
    """Opens texts as text files are opened."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text with line ends of one kind."""
        plain = type(text) is str
        return super().encode(text.replace("\r\n", "\n") if plain else text)


@saboteur("labels-composed", "labels are normalised to NFC, and so named in the results")
class LabelsComposed(Classifier):
    """Takes letters with marks for their composed forms."""

    def __init__(self, engine: Engine, config: GenerateConfig, meter: Meter) -> None:
        labels = tuple(dict.fromkeys(normalize("NFC", label) for label in config.labels))
        super().__init__(engine, replace(config, labels=labels), meter)


@saboteur(
    "continued-at-first-place", "a prompt that continues a message ends where its words come first"
)
class ContinuedAtFirstPlace(ReferenceModel):
    """Searches for the message in the prompt."""

    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        """Return the prompt for a conversation."""
        prompt = super().rendered(messages, config)
        if config is None or not config.continue_final_message or not messages[-1].content:
            return prompt
        before, content, _ = prompt.marked.partition(messages[-1].content)
        return RenderedPrompt(before + content, prompt.marker) if content else prompt


@saboteur("kinds-are-strings", "describe_model() raises for a model_type that is a list")
class KindsAreStrings(Reference):
    """Looks a model_type up in a set."""

    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        """Raises TypeError for what no set holds."""
        try:
            kind = read_config_json(path).get("model_type")
        except (CoreError, OSError):
            return None
        return super().describe_model(path) if kind in {MODEL_TYPE} else None


@saboteur(
    "sentence-is-a-format", "label_sentence is a format string, in which other braces are errors"
)
class SentenceIsAFormat(SentenceClassifier):
    """Fills the sentence in with str.format()."""

    def sentences(self) -> list[str]:
        """Return the sentence of each label."""
        return [self.config.label_sentence.format(label=label) for label in self.config.labels]


@saboteur("end-of-ids-dropped", "an end token at the end of a prompt of ids is dropped")
class EndOfIdsDropped(Engine):
    """Takes the end of a text for the end of a prompt."""

    def prompt_ids(self, prompt: str) -> list[int]:
        """Return the ids of a prompt without an end token at their end."""
        ids = super().prompt_ids(prompt)
        return ids[:-1] if isinstance(prompt, GivenIds) and ids[1:] and ids[-1] == EOS else ids
