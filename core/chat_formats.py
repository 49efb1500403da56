"""The chat formats of model families, for models that come without a template of their own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """A template for the ``model_types`` whose vocabulary has the special token ``mark``."""

    mark: str
    model_types: frozenset[str]
    template: str


# As in Gemma 3's own template: a system message goes before the first user message.
_GEMMA = ChatFormat(
    "<start_of_turn>",
    frozenset({"gemma", "gemma2", "gemma3", "gemma3_text"}),
    """\
{{ bos_token }}
{%- set prefix = '' -%}
{%- if messages[0].role == 'system' -%}
    {%- set prefix = messages[0].content + '\n\n' -%}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {{ raise_exception('a system message can only come first') }}
    {%- endif -%}
    {{ '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\n' }}
    {{- (prefix if loop.first else '') + message.content | trim + '<end_of_turn>\n' }}
{%- endfor -%}
{{ '<start_of_turn>model\n' if add_generation_prompt }}""",
)

# https://github.com/openai/openai-python/blob/v0.28.1/chatml.md
_CHATML = ChatFormat(
    "<|im_start|>",
    frozenset({"llama", "qwen2", "qwen3", "smollm3"}),
    """\
{%- for message in messages -%}
    {{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{{ '<|im_start|>assistant\n' if add_generation_prompt }}""",
)

# https://www.llama.com/docs/model-cards-and-prompt-formats/meta-llama-3/
_LLAMA3 = ChatFormat(
    "<|start_header_id|>",
    frozenset({"llama"}),
    """\
{{ bos_token }}
{%- for message in messages -%}
    {{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
    {{- message.content | trim + '<|eot_id|>' }}
{%- endfor -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' if add_generation_prompt }}""",
)

FORMATS = (_GEMMA, _CHATML, _LLAMA3)


def family_template(model_type: str, special: Collection[str]) -> str | None:
    """The template of a family whose marks the model has as special tokens; None without one."""
    fitting = (
        item.template for item in FORMATS if model_type in item.model_types and item.mark in special
    )
    return next(fitting, None)
