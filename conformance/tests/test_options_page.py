"""docs/options.md says what each option means; each paragraph names the checks that hold to it."""

from __future__ import annotations

import re
from pathlib import Path

from core_conformance.checking.check import all_checks

PAGE = (Path(__file__).parents[2] / "docs" / "options.md").read_text("utf-8")
PARAGRAPHS = [text for text in re.split(r"\n\n+", PAGE) if text.startswith("**")]


def named(text: str) -> list[str]:
    """The ids in the brackets at a paragraph's end."""
    brackets = re.findall(r"\[(`[^\]]*`)\]", text, flags=re.DOTALL)
    return re.findall(r"`([^`]+)`", brackets[-1]) if brackets else []


def test_every_paragraph_has_a_check() -> None:
    assert len(PARAGRAPHS) >= 14
    assert [text[:40] for text in PARAGRAPHS if not named(text)] == []


def test_every_check_that_it_names_is_there() -> None:
    names = [name for text in PARAGRAPHS for name in named(text)]
    assert [name for name in names if name not in all_checks()] == []
