"""A fake model for the tests of an application, which returns the answers that a test sets.

::

    model = core.testing.FakeModel({"The capital of France is": " Paris."})
    assert model.batch_generate(["The capital of France is"])[0].text == " Paris."
    assert model.calls[0].prompts == ("The capital of France is",)

It conforms to the contract of every backend (streams, stop strings, cancel, limits, typed errors),
so an application can rely on its behaviour. See docs/testing_your_application.md.
"""

from core.testing.backend import FakeBackend, write_model
from core.testing.model import Call, FakeModel

__all__ = ["Call", "FakeBackend", "FakeModel", "write_model"]
