"""Helpers for authors of backends: option checks, base classes, the clock of a request.

``from core.kit import REFUSABLE, RequestClock, checked_prompts, refuse_options`` is the line with
which a backend begins; docs/write_a_backend.md lists all names.
"""

from __future__ import annotations

from core.kit.base import GeneratorStream, RequestClock, TextModelBase, TokenStreamBase
from core.kit.support import (
    REFUSABLE,
    checked_pairs,
    checked_prompts,
    checked_text,
    refuse_load_options,
    refuse_options,
    text_error,
    unsupported,
)
from core.options import (
    resolve_classify,
    resolve_generate,
    resolve_load,
    resolve_request,
    resolve_template,
)

__all__ = [
    "REFUSABLE",
    "GeneratorStream",
    "RequestClock",
    "TextModelBase",
    "TokenStreamBase",
    "checked_pairs",
    "checked_prompts",
    "checked_text",
    "refuse_load_options",
    "refuse_options",
    "resolve_classify",
    "resolve_generate",
    "resolve_load",
    "resolve_request",
    "resolve_template",
    "text_error",
    "unsupported",
]
