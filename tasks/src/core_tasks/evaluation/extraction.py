"""Answers within a model's text: the number in it, or its normalised words."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

_GROUPS = r"[,\u00a0\u202f\u2009'\u2019]"
_MINUS = ("-", "\u2212")
_NUMBER = re.compile(
    rf"""
    (?<![\w.])(?:(?P<sign>[-+\u2212])\s?(?=[\d.$€£¥₹\\]))?  # a minus behind a digit is none
    (?:\\?[$€£¥₹]\s?(?P<inner>[-\u2212])?)?
    (?:
        (?P<mixed>\d+)\s+(?P<over>\d+)\s?/\s?(?P<under>\d+)(?![\d/])
      | (?P<upper>\d+)\s?/\s?(?P<lower>\d+)(?![\d/])
      | (?P<whole>\d{{1,3}}(?:{_GROUPS}\d{{3}})+(?!\d)|\d+)?
        (?P<point>\.\d+)?
        (?:[eE](?P<power>[-+]?\d{{1,3}})(?!\w))?
    )
    """,
    re.VERBOSE,
)
_LONGEST = 400  # characters of a number: one that a model repeats endlessly does not count
_MARKED = (
    re.compile(r"####\s*(.+)"),  # GSM8K's own mark
    re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}"),  # MATH's
    re.compile(r"(?i)\banswer(?:\s+is|\s*[:=])\s*(.+)"),
)
_FRAC = re.compile(r"\\[dt]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}")


def number_in(text: str) -> Fraction | None:
    """Return the number that is the answer of a text, or None.

    A number after ``####``, in ``\\boxed{}``, or after "answer is" or "answer:" has priority, the
    last of these marks over earlier ones; otherwise it is the last number of the text, as in
    lm-evaluation-harness's ``flexible-extract`` for GSM8K. Thousands may be grouped by commas,
    thin spaces or apostrophes; currencies and units do not count; ``3/4``, ``1 1/2``, ``1e3`` and
    ``\\frac{3}{4}`` are numbers.
    """
    plain = _plain(text)
    for place, mark in enumerate(_MARKED):
        marks = mark.findall(plain)
        # The first #### ends a worked answer; later text answers something else.
        for marked in marks[:1] if place == 0 else reversed(marks):
            numbers = _numbers(marked)
            if numbers:
                return numbers[0] if place != 1 else numbers[-1]
    numbers = _numbers(plain)
    return numbers[-1] if numbers else None


def shown(number: Fraction) -> str:
    """Return a number as a finite decimal if possible, else as a fraction."""
    if number.denominator == 1:
        return str(number.numerator)
    rest = number.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1:
        return f"{number.numerator}/{number.denominator}"
    places = 0
    while (number * 10**places).denominator != 1:
        places += 1
    digits = str(abs(int(number * 10**places))).rjust(places + 1, "0")
    return f"{'-' if number < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def words_of(text: str, *, case: bool = True, punctuation: bool = True) -> str:
    """Return a text normalised for comparison: composed Unicode, single blanks, none at the ends.

    Without ``case`` it is in lower case; without ``punctuation`` punctuation is removed.
    """
    plain = unicodedata.normalize("NFC", text)
    if not case:
        plain = plain.casefold()
    if not punctuation:
        plain = "".join(c for c in plain if not unicodedata.category(c).startswith("P"))
    return " ".join(plain.split())


def matched(pattern: re.Pattern[str], text: str) -> str | None:
    """Return a pattern's last match: its first group that matched, or all of it."""
    matches = [*pattern.finditer(text)]
    if not matches:
        return None
    return next((group for group in matches[-1].groups() if group is not None), matches[-1][0])


def _plain(text: str) -> str:
    for old, new in (("{,}", ","), ("\\!", ""), ("\\,", ""), ("**", ""), ("__", "")):
        text = text.replace(old, new)
    return _FRAC.sub(r"\1/\2", text)


def _numbers(text: str) -> list[Fraction]:
    return [value for match in _NUMBER.finditer(text) if (value := _value(match)) is not None]


def _value(match: re.Match[str]) -> Fraction | None:
    part = match.groupdict()
    if len(match[0]) > _LONGEST:
        return None

    # 1 1/2, then 1/2, then what has digits and perhaps a power of ten.
    if part["mixed"] is not None:
        value = _ratio(part["over"], part["under"])
        value = None if value is None else value + int(part["mixed"])
    elif part["upper"] is not None:
        value = _ratio(part["upper"], part["lower"])
    elif part["whole"] is None and part["point"] is None:
        return None
    else:
        whole = re.sub(_GROUPS, "", part["whole"] or "0")
        value = Fraction(f"{int(whole)}{_ascii(part['point'])}")
        value *= Fraction(10) ** int(part["power"] or 0)

    # A minus before a currency sign, or after it.
    negative = (part["sign"] in _MINUS) != (part["inner"] is not None)
    return None if value is None else -value if negative else value


def _ratio(upper: str, lower: str) -> Fraction | None:
    return Fraction(int(upper), int(lower)) if int(lower) else None


def _ascii(point: str | None) -> str:
    return "" if point is None else f".{''.join(str(unicodedata.digit(c)) for c in point[1:])}"
