"""The loaded reference model: what every `core.TextModel` offers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from core.kit.base import TextModelBase
from core.kit.chat import RenderedPrompt, refuse_variables, render
from core.kit.support import (
    checked_prompts,
    refuse_options,
)
from core.messages import checked_conversation
from core.options import GenerateConfig, LoadConfig
from core.protocols import Capability, TokenStream
from core.types import BatchResult, ClassifyResult, Conversation, Message, ModelInfo
from core_conformance.reference import vocabulary
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine
from core_conformance.reference.files import MODEL_TYPE
from core_conformance.reference.language import LOGIT_TOLERANCE, NUM_LAYERS, Language
from core_conformance.reference.meter import LEDGER, WEIGHTS_BYTES, Meter
from core_conformance.reference.sampling import HONOURS
from core_conformance.reference.stream import ReferenceStream

DEFAULT_SLOTS = 4


class ReferenceCore(TextModelBase):
    """The operations. ``capabilities`` are those declared; the others are refused.

    The classes that it is made of are attributes, so that a saboteur can break one of them.
    """

    engine_class: type[Engine] = Engine
    stream_class: type[ReferenceStream] = ReferenceStream
    batch_class: type[Batch] = Batch
    classifier_class: type[Classifier] = Classifier

    def __init__(
        self, language: Language, config: LoadConfig, capabilities: Collection[Capability]
    ) -> None:
        super().__init__("reference")
        self.capabilities, self.config = frozenset(capabilities), config
        slots = config.parallel_slots or DEFAULT_SLOTS
        self.engine = self.engine_class(
            language,
            slots if Capability.PARALLEL in capabilities else 1,
            config.context_overflow == "rotate",
            self.check_open,
        )
        LEDGER.add(WEIGHTS_BYTES)

    @property
    def model_type(self) -> str:
        """``model_type`` of config.json."""
        return MODEL_TYPE

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        return ModelInfo(
            architecture=MODEL_TYPE,
            vocab_size=vocabulary.VOCAB_SIZE,
            num_layers=NUM_LAYERS,
            hidden_size=vocabulary.VOCAB_SIZE,
            quant_bits=0,
            quant_group=0,
            context_length=self.engine.language.context_length,
            logit_tolerance=LOGIT_TOLERANCE,
        )

    def refuse_unsupported(self, request: GenerateConfig, capability: Capability) -> None:
        """Raise for undeclared operations and options."""
        if capability not in self.capabilities:
            raise self.unsupported(capability)
        refuse_options(request, capability, self._backend, self.capabilities, honours=HONOURS)

    def do_generate(self, prompt: str, request: GenerateConfig) -> TokenStream:
        """Return a stream that has not begun."""
        return self.stream(checked_prompts("generate", [prompt])[0], request)

    def do_chat(self, messages: Conversation, request: GenerateConfig) -> TokenStream:
        """Return a stream that answers the conversation."""
        return self.stream(self.rendered(checked_conversation(messages), request), request)

    def do_classify(self, prompts: Sequence[str], request: GenerateConfig) -> list[ClassifyResult]:
        """Read the distributions of all prompts."""
        rows = checked_prompts("classify", prompts)
        meter = Meter()
        results = self.classifier_class(self.engine, request, meter).results(rows)
        self.record(meter.metrics())
        return results

    def do_batch_generate(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> list[BatchResult]:
        """Continue all prompts, as many at once as there are slots."""
        batch = self.batch_class(self.engine, checked_prompts("batch_generate", prompts), request)
        results = batch.results()
        self.record(batch.meter.metrics())
        return results

    def release(self) -> None:
        """Give the weights back."""
        LEDGER.add(-WEIGHTS_BYTES)

    def stream(self, prompt: str, config: GenerateConfig) -> ReferenceStream:
        """Make a stream that has not begun."""
        return self.stream_class(self.engine, prompt, config, self.record)

    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        """Return the prompt for a conversation; its special tokens are the template's alone."""
        if config is not None:
            refuse_variables(config)
        template = _turns if config is not None and config.continue_final_message else _template
        return render(messages, vocabulary.SPECIAL, template, config=config)


def _template(messages: Sequence[Message]) -> str:
    return _turns(messages) + "<assistant>"


def _turns(messages: Sequence[Message]) -> str:
    return "".join(f"<{message.role}>{message.content}</s>" for message in messages)
