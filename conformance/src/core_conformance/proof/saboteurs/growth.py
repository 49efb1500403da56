"""Saboteurs of growth: a version that follows core's, options that are passed over."""

from __future__ import annotations

from typing import Any

from core import protocols
from core.errors import UnsupportedOptionError
from core.kit.chat import RenderedPrompt
from core.options import GenerateConfig
from core.protocols import Capability
from core.types import Conversation
from core_conformance.proof.registry import saboteur
from core_conformance.reference.backend import Reference
from core_conformance.reference.optional import ReferenceModel


@saboteur(
    "version-follows-core", "the backend states whatever version of the contract core implements"
)
class VersionFollowsCore(Reference):
    @property
    def protocol(self) -> int:  # type: ignore[override]
        return protocols.PROTOCOL_VERSION


@saboteur("new-options-are-passed-over", "options that are not of today's contract are passed over")
class NewOptionsArePassedOver(ReferenceModel):
    def refuse_unsupported(self, request: GenerateConfig, capability: Capability) -> None:
        try:
            super().refuse_unsupported(request, capability)
        except UnsupportedOptionError as error:
            if error.option in GenerateConfig.__dataclass_fields__:
                raise


@saboteur("render-chat-takes-all", "render_chat takes any keyword")
class RenderChatTakesAll(ReferenceModel):
    def render_chat(
        self, messages: Conversation, config: GenerateConfig | None = None, **options: Any
    ) -> RenderedPrompt:
        known = {"chat_template_kwargs", "continue_final_message"}
        passed: Any = {name: value for name, value in options.items() if name in known}
        return super().render_chat(messages, config, **passed)  # type: ignore[return-value]
