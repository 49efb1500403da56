"""The backend that keeps every clause: the suite's baseline, and an example to read."""

from core_conformance.reference.backend import Reference
from core_conformance.reference.sentences import Sentences
from core_conformance.reference.writing import write_adapter, write_model

__all__ = ["Reference", "Sentences", "write_adapter", "write_model"]
