"""Base of all remote models, for any API: facts, capabilities, closing."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Unpack

from core.kit.base import TextModelBase
from core.kit.support import checked_prompts, refuse_options, unsupported
from core.messages import checked_conversation
from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    RequestOptions,
    TemplateOptions,
    resolve_classify,
    resolve_generate,
    resolve_request,
    resolve_template,
)
from core.protocols import Capability
from core.types import BatchResult, Choice, Conversation, Message, ModelInfo
from core_remote.connection import Connection
from core_remote.stream import RemoteStream


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The facts that a probe has shown about a model.

    ``honours`` are the sampling options that it supports, of those without a capability.
    """

    info: ModelInfo
    capabilities: frozenset[Capability]
    honours: frozenset[str]
    choices: tuple[Choice, ...]


class RemoteModel(TextModelBase):
    """A model on a server. See `core.TextModel` for the contract of every method.

    Its class has only the methods of the optional protocols that the server's model offers.
    """

    def __init__(self, backend: str, connection: Connection, facts: ModelFacts) -> None:
        super().__init__(backend)
        self._connection, self._facts = connection, facts
        # Runs also without close(), and at the program's end.
        self._finalizer = weakref.finalize(self, connection.close)

    @property
    def info(self) -> ModelInfo:
        """Facts about the model, as reported by its server."""
        return self._facts.info

    @property
    def model_type(self) -> str:
        """The architecture's name, as reported by its server."""
        return self._facts.info.architecture

    def declared(self) -> frozenset[Capability]:
        """Return the capabilities of the server's model, as its probe has shown."""
        return self._facts.capabilities

    def choices(self) -> Sequence[Choice]:
        """Return the settings chosen for the model, each with its reason."""
        self.check_open()
        return self._facts.choices

    def release(self) -> None:
        """Close the connection, which ends this model's work on the server."""
        self._finalizer.detach()
        self._connection.close()

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> RemoteStream:
        """Continue a prompt, token by token. See `core.TextModel.generate`."""
        request = self.checked(Capability.GENERATE, config, options)
        [text] = checked_prompts("generate", [prompt])
        return self.continuing(text, request)

    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> RemoteStream:
        """Answer a conversation, through the template of the server's model."""
        request = self.checked(Capability.CHAT, config, options)
        return self.answering(checked_conversation(messages), request)

    def batch_generate(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> list[BatchResult]:
        """Continue many prompts, as many at once as the server takes; results in order."""
        request = self.checked(Capability.BATCH_GENERATE, config, options)
        return self.batch(checked_prompts("batch_generate", prompts), request)

    @abstractmethod
    def continuing(self, text: str, config: GenerateConfig) -> RemoteStream:
        """Return a stream that continues a prompt, not begun yet."""

    @abstractmethod
    def answering(self, turns: Sequence[Message], config: GenerateConfig) -> RemoteStream:
        """Return a stream that answers a conversation, not begun yet."""

    @abstractmethod
    def batch(self, texts: Sequence[str], config: GenerateConfig) -> list[BatchResult]:
        """Return the results of many prompts, and record their metrics."""

    def check_usable(self) -> None:
        """Raise `core.ModelClosedError` after ``close()``, and in a fork."""
        self.check_open()
        self._connection.check_usable()

    def checked(
        self,
        operation: Capability,
        config: GenerateConfig | None,
        options: GenerateOptions,
        name: str = "",
    ) -> GenerateConfig:
        """Return the options of a request. Raises for invalid and unsupported ones."""
        self.check_usable()
        return self._offered(operation, resolve_generate(config, options, name or operation.value))

    def checked_classify(
        self, operation: Capability, config: GenerateConfig | None, options: ClassifyOptions
    ) -> GenerateConfig:
        """Return the same for ``classify`` and ``classify_iter``."""
        self.check_usable()
        return self._offered(operation, resolve_classify(config, options))

    def checked_request(
        self,
        operation: Capability,
        config: GenerateConfig | None,
        options: RequestOptions,
        name: str = "",
    ) -> GenerateConfig:
        """Return the same for ``score`` and similar methods."""
        self.check_usable()
        return self._offered(operation, resolve_request(config, options, name or operation.value))

    def checked_template(
        self, config: GenerateConfig | None, options: TemplateOptions
    ) -> GenerateConfig:
        """Return the options of ``render_chat``. Raises like `checked`."""
        self.check_usable()
        return self._offered(Capability.TOKENIZING, resolve_template(config, options))

    def _offered(self, operation: Capability, config: GenerateConfig) -> GenerateConfig:
        offered: Collection[Capability] = self._facts.capabilities
        if operation not in offered:
            raise unsupported(operation, self._backend, self.refusals)
        refuse_options(config, operation, self._backend, offered, honours=self._facts.honours)
        return config
