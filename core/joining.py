"""Rules for the space between a text and the word that follows it.

No space follows text in a script without spaces, an opening mark, or a joining
sign; anything else takes one. The kinds of endings were measured: one takes no space here if
two models both give a word three times the probability without it. The first character of the word
does not matter.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_LOOK = 64  # characters that are examined: an opening tag may be long
_SCRIPT = "text of a script without spaces"

# Ranges, not widths: emoji are as wide as Chinese, and Korean separates words by spaces.
_UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff\u1780-\u17ff\u19e0-\u19ff"  # Thai, Lao, Khmer
    "\u2e80-\u3130\u3190-\ua4cf\uf900-\ufaff"  # Chinese, Japanese, Yi, and their punctuation
    "\ufe10-\ufe1f\ufe30-\ufe4f\uff01-\uff9f\uffe0-\uffe6"  # in its forms, full-width and others
    "\U00016fe0-\U00018dff\U0001aff0-\U0001b2ff\U00020000-\U0003ffff"
    "]"
)
_ATTACHED = "\"'`)]}*_,\u2018\u2019\u201c\u201d\u2026\u2013\u2014\u00b7\u2192"
"""Characters that take no space after such text, although they do after a word."""

_OPENING = "<\u00bf\u00a1"  # and Unicode's opening punctuation
_QUOTES = "\"'`\u2018\u201b\u201c\u201f\u00ab\u2039"  # they may close as well
_TAG = re.compile(r"<[^\s<>/=\d][^<>\n]*(?<![/=-])>\Z")
_SIGN = re.compile(
    r"(?:[@\\~]"
    r"|(?<![A-Za-z#])#"  # of a tag: not C#, and not a heading
    r"|(?<!\d)\$"
    r"|(?:(?<=[^\s/])|(?<=:/)|(?<![^\n]))/"  # of a path
    r"|(?<=[^\W_])(?:[_&\u2013-]|--|\u2014\u2014?)"
    r"|(?<=[\w\"')\]])=)\Z"
)
_SIGN_LOOK = 3
_LINE_START = re.compile(r"(?:\A|\n)[ \t]*\Z")


def unspaced(text: str) -> str:
    """Return the kind of ending after which no space follows this text; "" if one follows."""
    last = text[-1:]
    if last.isascii() and (last.isalnum() or last in ":.?!"):  # most prompts
        return ""
    return _ending(text[-_LOOK:])


@lru_cache(maxsize=1024)
def _ending(end: str) -> str:
    end = _visible(end)
    last = end[-1:]
    if not last or last.isspace():
        return ""
    if _UNSPACED.match(last):
        return _SCRIPT
    if last in _QUOTES and _quote_opens(end, last):
        return "an opening quote"
    if last in "*_" and _emphasis_opens(end, last):
        return f"an opening {last}"
    if last in _OPENING or unicodedata.category(last) == "Ps":
        return f"an opening {last}"
    if last == ">" and _TAG.search(end):
        return "an opening tag"
    if sign := _SIGN.search(end[-_SIGN_LOOK:]):
        return repr(sign[0])
    if last in _ATTACHED and _UNSPACED.match(_visible(end.rstrip(_ATTACHED))[-1:]):
        return _SCRIPT
    return ""


def _visible(end: str) -> str:
    """Return the text without marks and format characters at its end that belong to what they
    follow.
    """
    while unicodedata.category(end[-1:] or "a") in ("Mn", "Me", "Cf"):
        if _UNSPACED.match(end[-1]):
            break
        end = end[:-1]
    return end


def _quote_opens(end: str, quote: str) -> bool:
    before = end.rstrip(quote).rstrip("\\")  # \" is a quote within a quote
    if before and before[-1] in ":=,;|>":  # {"topic":" opens, "Topic:" closes
        return not re.search(rf"{quote}\w[^{quote}\n]*\Z", before)
    return _starts(before)


def _emphasis_opens(end: str, mark: str) -> bool:
    before = end.rstrip(mark)
    if mark == "_":  # more of them are a blank to be filled in
        return len(end) == len(before) + 1 and _starts(before)
    bullet = len(end) == len(before) + 1 and _LINE_START.search(before)
    return not bullet and _starts(before)


def _starts(before: str) -> bool:
    """Return whether a word may start after this text without a space."""
    last = before[-1:]
    return not last or last.isspace() or _ending(before) not in ("", _SCRIPT)
