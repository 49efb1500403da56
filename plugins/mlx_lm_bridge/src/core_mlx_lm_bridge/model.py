"""The loaded model of the public API: checks and bookkeeping around the worker."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from core.errors import CoreError, RequestError
from core.kit.base import TextModelBase
from core.kit.chat import RenderedPrompt, check_continued
from core.kit.support import (
    checked_prompts,
    refuse_options,
    text_error,
    unicode_error,
)
from core.messages import checked_conversation
from core.options import (
    ChatOptions,
    GenerateConfig,
    GenerateOptions,
    resolve_generate,
)
from core.protocols import Capability
from core.types import Choice, Conversation, Message, ModelInfo
from core_mlx_lm_bridge.capabilities import MODEL_CAPABILITIES
from core_mlx_lm_bridge.protocol import Chat, ChatTurn, Generate, GenerationOptions
from core_mlx_lm_bridge.stream import BridgeStream, WorkerLine

# The options of a request that are copied as they are; all others are refused.
_FIELDS = frozenset(GenerationOptions.__struct_fields__) - {"id", "stop_tokens"}


class BridgeModel(TextModelBase):
    """A model in a worker. See `core.TextModel` for the contract of every method.

    It only streams; ``classify`` and ``batch_generate`` are refused. The worker serves one stream
    at a time: calls of other threads wait for their turn; a second open stream of the same thread
    raises `core.ModelBusyError`.
    """

    def __init__(
        self, backend: str, info: ModelInfo, choices: Sequence[Choice], line: WorkerLine
    ) -> None:
        super().__init__(backend)
        self._info, self._choices, self._line = info, tuple(choices), line
        # Runs also without close(), and at the program's end.
        self._finalizer = weakref.finalize(self, line.session.close)

    @property
    def info(self) -> ModelInfo:
        """Facts about the model, as reported by the worker."""
        return self._info

    @property
    def model_type(self) -> str:
        """``model_type`` of config.json."""
        return self._info.architecture

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> BridgeStream:
        """Continue a prompt, token by token. See `core.TextModel.generate`."""
        request = self._checked(Capability.GENERATE, config, options)
        text = checked_prompts("generate", [prompt])[0]
        return self._stream(lambda: _generate(text, request), request)

    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> BridgeStream:
        """Answer a conversation, through the model's own chat template."""
        request = self._checked(Capability.CHAT, config, options)
        turns = checked_conversation(messages)
        check_continued(turns, request)
        return self._stream(lambda: _chat(turns, request), request)

    def choices(self) -> Sequence[Choice]:
        """Return the settings chosen automatically at load, with their reasons."""
        return self._choices

    def release(self) -> None:
        """End the worker."""
        self._finalizer.detach()
        self._line.session.close()

    def _checked(
        self, operation: Capability, config: GenerateConfig | None, options: GenerateOptions
    ) -> GenerateConfig:
        self.check_open()
        request = resolve_generate(config, options, operation.value)
        refuse_options(request, operation, self._backend, MODEL_CAPABILITIES, honours=_FIELDS)
        return request

    def _stream(
        self, prepare: Callable[[], Generate | Chat], config: GenerateConfig
    ) -> BridgeStream:
        return BridgeStream(self._line, prepare, config, self.record)


def _generate(prompt: str, config: GenerateConfig) -> Generate:
    if isinstance(prompt, RenderedPrompt):
        raise RequestError(
            "Backend 'mlx_lm' reads every prompt as literal text, so a core.RenderedPrompt would "
            "lose its special tokens. Use chat(), or a plain string."
        )
    _refuse(text_error(prompt))
    return Generate(prompt=prompt, stop_tokens=list(config.stop_tokens), **_options(config))


def _chat(messages: Sequence[Message], config: GenerateConfig) -> Chat:
    for message in messages:
        _refuse(unicode_error(message.content + (message.name or ""), "message"))
    return Chat(
        messages=[ChatTurn(message.role, message.content, message.name) for message in messages],
        chat_template_kwargs=dict(config.chat_template_kwargs or {}),
        continue_final_message=config.continue_final_message,
        stop_tokens=list(config.stop_tokens),
        **_options(config),
    )


def _options(config: GenerateConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in _FIELDS}


def _refuse(error: CoreError | None) -> None:
    if error is not None:
        raise error
