"""The loaded reference model: what every `core.TextModel` offers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Unpack

from core.kit.base import TextModelBase
from core.kit.chat import RenderedPrompt, refuse_variables, render
from core.kit.support import (
    checked_prompts,
    refuse_options,
    unsupported,
)
from core.messages import checked_conversation
from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    LoadConfig,
    RequestOptions,
    resolve_classify,
    resolve_generate,
    resolve_request,
)
from core.protocols import Capability, TokenStream
from core.types import BatchResult, ClassifyResult, Conversation, Message, ModelInfo
from core_conformance.reference import vocabulary
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine
from core_conformance.reference.files import MODEL_TYPE
from core_conformance.reference.language import LOGIT_TOLERANCE, NUM_LAYERS, Language
from core_conformance.reference.meter import LEDGER, WEIGHTS_BYTES, Meter
from core_conformance.reference.stream import ReferenceStream

DEFAULT_SLOTS = 4
HONOURS = frozenset({"temperature", "top_k", "typical_p", "top_p", "min_p", "repeat_penalty"})


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

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """See `core.TextModel.generate`."""
        request = self.checked(Capability.GENERATE, config, options)
        return self.stream(checked_prompts("generate", [prompt])[0], request)

    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        """See `core.TextModel.chat`."""
        request = self.checked(Capability.CHAT, config, options)
        return self.stream(self.rendered(checked_conversation(messages), request), request)

    def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """See `core.TextModel.classify`."""
        request = self.checked_classify(Capability.CLASSIFY, config, options)
        rows = checked_prompts("classify", prompts)
        meter = Meter()
        results = self.classifier_class(self.engine, request, meter).results(rows)
        self.record(meter.metrics())
        return results

    def batch_generate(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> list[BatchResult]:
        """See `core.TextModel.batch_generate`."""
        request = self.checked(Capability.BATCH_GENERATE, config, options)
        batch = self.batch_class(self.engine, checked_prompts("batch_generate", prompts), request)
        results = batch.results()
        self.record(batch.meter.metrics())
        return results

    def release(self) -> None:
        """Give the weights back."""
        LEDGER.add(-WEIGHTS_BYTES)

    def checked(
        self, operation: Capability, config: GenerateConfig | None, options: GenerateOptions
    ) -> GenerateConfig:
        """Return the options of a request.

        Raises for what is wrong, and for what is not declared.
        """
        return self._checked(operation, lambda: resolve_generate(config, options, operation.value))

    def checked_classify(
        self, operation: Capability, config: GenerateConfig | None, options: ClassifyOptions
    ) -> GenerateConfig:
        """Return the options of a ``classify`` or ``classify_iter`` request.

        Raises like `checked`.
        """
        return self._checked(operation, lambda: resolve_classify(config, options))

    def checked_request(
        self, operation: Capability, config: GenerateConfig | None, options: RequestOptions
    ) -> GenerateConfig:
        """Return the options of a ``score`` or ``inspect_attention`` request.

        Raises like `checked`.
        """
        return self._checked(operation, lambda: resolve_request(config, options, operation.value))

    def _checked(
        self, operation: Capability, resolve: Callable[[], GenerateConfig]
    ) -> GenerateConfig:
        self.check_open()
        request = resolve()
        if operation not in self.capabilities:
            raise unsupported(operation, self._backend)
        refuse_options(request, operation, self._backend, self.capabilities, honours=HONOURS)
        return request

    def stream(self, prompt: str, config: GenerateConfig) -> ReferenceStream:
        """Make a stream that has not begun."""
        return self.stream_class(self.engine, prompt, config, self.record)

    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        """Return the prompt for a conversation; its special tokens are the template's alone."""
        if config is not None:
            refuse_variables(config)
        template = _said if config is not None and config.continue_final_message else _template
        return render(messages, vocabulary.SPECIAL, template, config=config)


def _template(messages: Sequence[Message]) -> str:
    return _said(messages) + "<assistant>"


def _said(messages: Sequence[Message]) -> str:
    return "".join(f"<{message.role}>{message.content}</s>" for message in messages)
