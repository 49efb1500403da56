"""Availability of the HTTP client, decided without importing it."""

from __future__ import annotations

import importlib.util

from core.plugins import install_command


def unavailable_reason() -> str | None:
    """Return the reason why the backend cannot be used, None if it can."""
    for module in ("httpx", "msgspec"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed. Install it with: {install_command('remote')}."
    return None
