"""What can go wrong with learning: all of it is a `core.CoreError`."""

from __future__ import annotations

from core.errors import CoreError


class LearnError(CoreError):
    """Something about a head, or about what it learns from, cannot be used."""


class TrainingDataError(LearnError, ValueError):
    """Nothing can be learned from these rows."""


class HeadFileError(LearnError):
    """A head is broken, or its file holds none, or one of a newer format."""


class ForeignHeadError(LearnError):
    """The head was learned on another model than the one that it is used with."""
