"""What every loaded model has from `TextModelBase`."""

from __future__ import annotations

from core.kit.base import TextModelBase


class OneModel(TextModelBase):
    """A model of nothing."""


def test_repr_says_the_backend_and_whether_it_is_open() -> None:
    model = OneModel("fake")
    assert repr(model) == "<OneModel backend='fake' open>"
    model.close()
    assert repr(model) == "<OneModel backend='fake' closed>"
