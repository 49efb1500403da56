"""A model for the tests of an application: it says what the test tells it to say.

::

    model = core.testing.FakeModel({"The capital of France is": " Paris."})
    assert model.batch_generate(["The capital of France is"])[0].text == " Paris."
    assert model.calls[0].prompts == ("The capital of France is",)

It keeps the contract of every backend (streams, stop strings, cancel, limits, typed errors), so an
application meets here what it will meet there. docs/testing_your_application.md tells the rest.
"""

from core.testing.backend import FakeBackend, write_model
from core.testing.model import Call, FakeModel

__all__ = ["Call", "FakeBackend", "FakeModel", "write_model"]
