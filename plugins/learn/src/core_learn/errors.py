"""Errors of learning, all of them a `core.CoreError`."""

from __future__ import annotations

from core.errors import CoreError


class LearnError(CoreError):
    """The base of errors of classifier heads and of their training data."""


class TrainingDataError(LearnError, ValueError):
    """The error of rows from which nothing can be learned."""


class HeadFileError(LearnError):
    """The error of a broken head, of a file without a head, and of a newer format."""


class ForeignHeadError(LearnError):
    """The error of a head that was learned on another model than it is used with."""
