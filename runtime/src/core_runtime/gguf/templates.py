"""The chat templates of a GGUF file.

llama.cpp's server starts a chat with one BOS if the tokenizer adds one, whether or not the template
writes it. transformers leaves it to the template, so the template returned here writes it.
"""

from __future__ import annotations

import re

from core_runtime.gguf.metadata import Metadata
from core_runtime.gguf.vocabulary import adds_bos

_DEFAULT, _NAMED = "tokenizer.chat_template", "tokenizer.chat_template."
_BEGINS_WITH_BOS = re.compile(r"(?:\s*\{\{-|\{\{)\s*bos_token\s*[-+~}]")
_FILE_NAME = re.compile(r"[A-Za-z0-9_-]+")


def chat_templates(meta: Metadata) -> tuple[str, dict[str, str]]:
    """Return the default template, or an empty text, and the templates with names.

    A single named template becomes the default. Raises `Metadata.error` for a name that cannot be a
    file name.
    """
    named = _named(meta)
    default = meta.text(_DEFAULT, "")
    if not default and len(named) == 1:
        default = named.popitem()[1]

    if not adds_bos(meta):
        return default, named
    with_bos = {name: _beginning_with_bos(template) for name, template in named.items()}
    return default and _beginning_with_bos(default), with_bos


def _named(meta: Metadata) -> dict[str, str]:
    keys = [key for key in meta.values if key.startswith(_NAMED)]
    named = {key.removeprefix(_NAMED): meta.text(key) for key in keys}
    for name in named:
        if not _FILE_NAME.fullmatch(name):
            raise meta.error(f"the chat template name {name!r:.60} cannot be a file name")
    return {name: template for name, template in named.items() if template}


def _beginning_with_bos(template: str) -> str:
    """Return the template with a prepended BOS, unless it starts with one.

    The text is collected in a variable, unchanged: it starts on a new line, whose break jinja drops
    after the comment; at its end jinja would drop one too, and the empty output prevents the next
    block from stripping white space.
    """
    if _BEGINS_WITH_BOS.match(template):
        return template
    text = template.removesuffix("\n")
    return (
        "{% set chat_text %}{# one BOS, as llama.cpp has it #}\n" + text + "{{ '' }}{% endset %}"
        "{{ chat_text if chat_text.startswith(bos_token) else bos_token + chat_text }}"
    )
