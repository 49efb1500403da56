"""Prompts and labels of the checks: English, unless an author's table has others.

A model of another language ends after English, and then most checks have nothing to look at.
Checks take their prompts when they are imported, so an author's own have to be known before
(`core_conformance.running.settings` reads them).
"""

from __future__ import annotations

from dataclasses import dataclass

FEWEST_PROMPTS, FEWEST_LABELS = 6, 3


@dataclass(frozen=True, slots=True)
class Material:
    """Beginnings of sentences that the model continues, and words that could come next.

    Raises ValueError, in words for the author, for fewer than the checks take.
    """

    prompts: tuple[str, ...]
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, texts, fewest in (
            ("prompts", self.prompts, FEWEST_PROMPTS),
            ("labels", self.labels, FEWEST_LABELS),
        ):
            if len(set(filter(str.strip, texts))) < max(fewest, len(texts)):
                raise ValueError(
                    f"The {name} must be at least {fewest} different, non-empty texts."
                )

    @property
    def long(self) -> str:
        """The longest prompt."""
        return max(self.prompts, key=len)

    @property
    def several_words(self) -> tuple[str, str, str]:
        """Labels of two words, two of which begin alike."""
        one, other, third = self.labels[:3]
        return f"{one} {other}", f"{one} {third}", f"{other} {third}"

    @property
    def repeating(self) -> tuple[str, str, str]:
        """Prompts that repeat the same words."""
        one, other, third = self.labels[:3]
        return f"{one} {other} " * 3 + one, f"{third} {one} " * 3, f"{other} {other} {other}"


LABELS = ("good", "bad", "new")
_own: Material | None = None
_taken = False


def use(material: Material | None) -> None:
    """Use this material, or the English one. Raises ValueError if it is too late."""
    global _own
    if _taken and material != _own:
        raise ValueError(
            "The checks were already imported with other prompts. Run them in a new process."
        )
    _own = material


def own() -> Material | None:
    """Return the author's material, fixed from now on; None by default."""
    global _taken
    _taken = True
    return _own


def labels() -> tuple[str, ...]:
    """Return three labels: the author's, or English ones."""
    material = own()
    return material.labels[:3] if material else LABELS
