"""Conversations: the model's own template, and what a message may not do."""

from __future__ import annotations

import pytest

from core.errors import ChatTemplateError
from core.types import Message
from core_llama_cpp.model import LlamaModel


def test_chat_is_generate_behind_the_rendered_prompt(real_model: LlamaModel) -> None:
    turns = [Message("user", "Say hi."), Message("assistant", "Hi!"), Message("user", "Again.")]
    prompt = real_model.render_chat(turns)
    answer = [token.id for token in real_model.chat(turns, max_tokens=8)]
    assert answer == [token.id for token in real_model.generate(prompt, max_tokens=8)]
    assert answer
    assert turns[2].content in prompt


def test_the_template_is_the_models_own(smollm2_model: LlamaModel) -> None:
    prompt = smollm2_model.render_chat([Message("system", "Be brief."), Message("user", "Hi")])
    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert smollm2_model.encode(prompt)[0] == 1  # <|im_start|>


def test_a_family_format_serves_a_model_without_a_template(gemma3_model: LlamaModel) -> None:
    prompt = gemma3_model.render_chat([Message("user", "Hi")])
    assert prompt == "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
    assert gemma3_model.encode(prompt)[:2] == [2, 105]


def test_a_conversation_has_messages(smollm2_model: LlamaModel) -> None:
    with pytest.raises(ChatTemplateError, match="conversation is empty"):
        smollm2_model.chat([])
