"""The chat templates in a GGUF file: one without a name, and others with names.

Keys: ``tokenizer.chat_template`` and ``tokenizer.chat_template.NAME`` (gguf-py's ``Keys``); the
list of names in ``tokenizer.chat_templates`` adds nothing to them.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.models.gguf import GgufValue

_DEFAULT, _NAMED = "tokenizer.chat_template", "tokenizer.chat_template."


def chosen_template(metadata: Mapping[str, GgufValue]) -> tuple[str | None, str]:
    """Return the template to use or None, and the reason if none could be chosen.

    The one without a name is the model's default; without it, a single named one is used.
    """
    templates: dict[str, str] = {}
    for key, text in metadata.items():
        if key == _DEFAULT or key.startswith(_NAMED):
            if not isinstance(text, str):
                return None, f"The model's {key} is {text!r:.60}, not text. Convert it again."
            templates[key] = text
    if default := templates.pop(_DEFAULT, ""):
        return default, ""

    named = {key: text for key, text in templates.items() if text}
    if len(named) > 1:
        names = ", ".join(repr(key.removeprefix(_NAMED)) for key in named)
        return None, (
            f"The model has the chat templates {names} without a default. Render one yourself, and "
            "pass the text to generate or classify as core.RenderedPrompt(text)."
        )
    return next(iter(named.values()), None), ""
