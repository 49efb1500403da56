"""A model under its public name, with its queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property

from core.errors import UnsupportedOperationError
from core.extensions import Tokenizing
from core.options import GenerateConfig
from core.protocols import Capability, TextModel
from core.records import RowResult
from core.rendering import Rendering
from core_server.queues.fits import FittedTasks
from core_server.queues.question_queue import QuestionQueue
from core_server.queues.text_queue import TextQueue
from core_wires.usage import token_count


class Served:
    """A loaded model. ``defaults`` are the default options of requests.

    ``capabilities`` are the ones that its backend offers; by default, all are assumed.
    """

    def __init__(
        self,
        name: str,
        model: TextModel,
        *,
        backend: str = "",
        capabilities: Collection[Capability] = frozenset(Capability),
        defaults: GenerateConfig | None = None,
    ) -> None:
        self.name, self.model, self.backend = name, model, backend
        self.capabilities = frozenset(capabilities)
        self.defaults = defaults or GenerateConfig()
        self.questions = QuestionQueue(model)
        self.texts = TextQueue(self.capabilities)
        self.tasks = FittedTasks(model)

    def needs(self, capability: Capability, operation: str) -> None:
        """Raise `core.UnsupportedOperationError` if the backend does not offer a capability."""
        if capability not in self.capabilities:
            raise UnsupportedOperationError(operation, self.backend, ())

    def tokenizing(self) -> Tokenizing:
        """Return the model if it has a tokenizer. Raises `core.UnsupportedOperationError`."""
        if isinstance(self.model, Tokenizing):
            return self.model
        raise UnsupportedOperationError("chat templates", self.backend, ())

    @cached_property
    def label_prompts(self) -> Rendering:
        """The function from conversations to prompts after which labels are read.

        Raises `core.UnsupportedOperationError`.
        """
        return Rendering(self.tokenizing(), self.defaults, labels=True)

    def tokens(self, prompts: Sequence[str], results: Sequence[RowResult]) -> int:
        """Return the token count of the prompts that were read; 0 without a tokenizer.

        They are counted afterwards: by then the model has refused prompts that are much too long,
        which would take seconds.
        """
        pairs = zip(prompts, results, strict=True)
        return token_count(self.model, (prompt for prompt, row in pairs if row.error is None))

    def counted(self) -> Counter[str]:
        """Return the counters of both queues."""
        return Counter(self.questions.counted) + Counter(self.texts.counted)

    def close(self) -> None:
        """End the queues and fits, then the model."""
        self.questions.close()
        self.texts.close()
        self.tasks.close()
        self.model.close()
