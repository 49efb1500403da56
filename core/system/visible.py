"""Safe display of text of unknown origin: control characters of terminals become escapes.

Names of files and tensors, templates, tokens and the messages made of them come from models, and
may hold control sequences, or characters that reorder or hide the text around them.
"""

from __future__ import annotations

import json
import re
import unicodedata

# Controls, format characters (those that set a direction of writing are the dangerous ones),
# surrogates (of file names that are not UTF-8), line and paragraph separators.
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Joiners: emoji, and scripts such as Persian and Hindi, are made of them.
_JOINERS = "\u200c\u200d"


def visible(text: str) -> str:
    """Return the text with every character that may control a terminal as an escape."""
    return _escaped(text, "")


def visible_lines(text: str) -> str:
    """Return a text of several lines, made safe like `visible` except newlines and tabs."""
    return _escaped(text, "\n\t")


def visible_json(data: bytes) -> bytes:
    """Return a JSON document in UTF-8 with such characters in strings as JSON escapes."""
    text = data.decode()
    if text.rstrip("\n").isprintable():
        return data
    # Outside of strings there are none but white space.
    return re.sub(r"[^\x00-\x7e]", lambda found: _in_json(found[0]), text).encode()


def _escaped(text: str, kept: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if character not in kept and _is_hidden(character)
        else character
        for character in text
    )


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN and character not in _JOINERS


def _in_json(character: str) -> str:
    if character == "\x7f":  # which JSON allows, and `json` leaves
        return "\\u007f"
    return json.dumps(character)[1:-1] if _is_hidden(character) else character
