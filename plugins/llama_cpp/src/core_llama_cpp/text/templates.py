"""The chat templates that a GGUF file holds: one without a name, and others by their names.

Keys: ``tokenizer.chat_template`` and ``tokenizer.chat_template.NAME`` (gguf-py's ``Keys``); the
list of names in ``tokenizer.chat_templates`` adds nothing to them.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.models.gguf import GgufValue

_DEFAULT, _NAMED = "tokenizer.chat_template", "tokenizer.chat_template."


def chosen_template(metadata: Mapping[str, GgufValue]) -> tuple[str | None, str]:
    """Return the template to use, None where there is none to use, and the reason not to choose.

    The one without a name is the model's default; of others, only a single one can be meant.
    """
    templates: dict[str, str] = {}
    for key, text in metadata.items():
        if key == _DEFAULT or key.startswith(_NAMED):
            if not isinstance(text, str):
                return None, f"The model's {key} is {text!r:.60}, not a text. Convert it again."
            templates[key] = text
    if default := templates.pop(_DEFAULT, ""):
        return default, ""

    named = {key: text for key, text in templates.items() if text}
    if len(named) > 1:
        names = ", ".join(repr(key.removeprefix(_NAMED)) for key in named)
        return None, (
            f"The model has the chat templates {names}, and none of them is its default. Render "
            "one yourself, and give its text to generate or classify as core.RenderedPrompt(text)."
        )
    return next(iter(named.values()), None), ""
