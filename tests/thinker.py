"""A fake model that thinks before it answers, for tests of a chat template's options."""

from __future__ import annotations

from typing import Unpack

from core.kit.chat import RenderedPrompt, refuse_variables
from core.messages import checked_conversation
from core.options import GenerateConfig, TemplateOptions, resolve_template
from core.testing import FakeModel
from core.testing.language import render_chat
from core.types import Conversation


class Thinker(FakeModel):
    """A model whose template opens a think block, unless ``enable_thinking`` is False."""

    def render_chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        **options: Unpack[TemplateOptions],
    ) -> RenderedPrompt:
        request = resolve_template(config, options)
        variables = dict(request.chat_template_kwargs or {})
        thinks = variables.pop("enable_thinking", True)
        refuse_variables(GenerateConfig(chat_template_kwargs=variables))
        own = GenerateConfig(continue_final_message=request.continue_final_message)
        prompt = render_chat(checked_conversation(messages), own)
        if request.continue_final_message:
            return prompt
        return prompt + ("<think>" if thinks else "<think></think>")
