"""Models whose work is done, and whose memory is freed, on a thread of their own."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from typing import Protocol

from core_runtime.model import InProcessModel
from core_runtime.owner import OwnerThread


class Closable(Protocol):
    """The loaded parts of a model."""

    def close(self) -> None:
        """Free everything loaded, on the owner thread. May be called twice."""
        ...


class OwnedModel(InProcessModel):
    """The lifetime of a model on its owner thread. Call `own` at the end of ``__init__``."""

    _owner: OwnerThread

    def own(self, loaded: Closable) -> None:
        """Free ``loaded`` with the model, also without a call of ``close()``."""
        # The finalizer must not hold a reference to the model.
        self._finalizer = weakref.finalize(self, _abandon, self._owner, loaded)

    @abstractmethod
    def free(self) -> None:
        """Free everything loaded; on the owner thread."""

    @property
    def model_type(self) -> str:
        """The architecture, as the model's files name it."""
        return self.info.architecture

    def check_open(self) -> None:
        """Raise `ModelClosedError` after ``close()``, and in a fork, for every operation alike."""
        super().check_open()
        self._owner.check_fork()

    def release(self) -> None:
        """Free everything now, after queued work."""
        self._owner.close(self.free)
        self._finalizer.detach()  # last: an interrupt before it leaves the finalizer in place


def _abandon(owner: OwnerThread, loaded: Closable) -> None:
    owner.post(loaded.close)
    owner.stop()
