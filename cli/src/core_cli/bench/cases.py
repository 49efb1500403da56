"""Tests: prefill, decoding, batches of labels and texts, samplers, time to first token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from core.options import GenerateConfig
from core.protocols import Capability, TextModel
from core.types import GenerateMetrics
from core_cli.bench.prompts import Prompts

Kind = Literal["pp", "tg", "sampling", "ttft", "classify", "generate"]
KINDS: tuple[Kind, ...] = ("pp", "tg", "sampling", "ttft", "classify", "generate")
Clock = Callable[[], float]

CHAIN = GenerateConfig(
    temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.1, seed=0
)
"""All samplers, with the defaults of llama.cpp."""
LABELS = ("finance", "sports", "science", "technology")
CLASSIFIED, BEGUN, WRITTEN = 64, 16, 32
"""Lengths in tokens: a prompt to classify, a prompt to continue, and the text of a batch row."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test with a name like llama-bench's: ``pp512``, ``tg128``; also ``classify@8`` etc.

    ``prompt`` and ``generated`` are tokens per row, ``rows`` is the number of rows per call.
    """

    kind: Kind
    prompt: int
    generated: int
    rows: int = 1

    @property
    def name(self) -> str:
        """The name in tables."""
        return {
            "pp": f"pp{self.prompt}",
            "tg": f"tg{self.generated}",
            "sampling": f"tg{self.generated}+chain",
            "ttft": f"ttft{self.prompt}",
            "classify": f"classify@{self.rows}",
            "generate": f"generate@{self.rows}",
        }[self.kind]

    @property
    def unit(self) -> str:
        """Unit of the rate; for ``ttft`` the unit of the time itself."""
        return {"ttft": "s", "classify": "prompts/s"}.get(self.kind, "tokens/s")

    @property
    def needed(self) -> tuple[Capability, ...]:
        """Capabilities of which a backend needs at least one."""
        if self.kind == "classify":
            return (Capability.LABELS,)
        return (Capability.BATCH_GENERATE,) if self.kind == "generate" else (Capability.GENERATE,)


@dataclass(frozen=True, slots=True)
class Sample:
    """The duration of one run: ``count`` tokens or prompts in ``seconds``."""

    count: int
    seconds: float


def cases(
    kinds: Sequence[Kind] = KINDS, pp: int = 512, tg: int = 128, sizes: Sequence[int] = (1, 8, 32)
) -> list[Case]:
    """Return all cases of these kinds, batches at each size.

    Prompts have at most ``pp`` tokens, and texts at most ``tg``.
    """
    selection: list[Case] = []
    for kind in (known for known in KINDS if known in kinds):
        if kind == "classify":
            selection += [Case(kind, min(CLASSIFIED, pp), 0, rows) for rows in sizes]
        elif kind == "generate":
            selection += [Case(kind, min(BEGUN, pp), min(WRITTEN, tg), rows) for rows in sizes]
        elif kind in ("tg", "sampling"):
            selection.append(Case(kind, min(BEGUN, pp), tg))
        else:
            selection.append(Case(kind, pp, 0))
    return selection


@dataclass(slots=True)
class Contestant:
    """A model under test, its name, and the capabilities of its backend."""

    name: str
    model: TextModel
    backend: str
    capabilities: frozenset[Capability]
    load_seconds: float = 0.0

    def offers(self, case: Case) -> bool:
        """Return whether the backend supports the case."""
        return any(capability in self.capabilities for capability in case.needed)

    def sample(self, case: Case, prompts: Prompts, clock: Clock) -> Sample:
        """Run a case once, on random prompts. Raises what the model raises."""
        texts = prompts.texts(case.rows, case.prompt)
        run = {
            "pp": self._prefilled,
            "ttft": self._prefilled,
            "tg": self._decoded,
            "sampling": self._decoded,
            "classify": self._classified,
            "generate": self._generated,
        }[case.kind]
        return run(case, texts, prompts, clock)

    @property
    def metrics(self) -> GenerateMetrics:
        """Metrics of the last call."""
        return self.model.metrics

    def _prefilled(
        self, case: Case, texts: Sequence[str], prompts: Prompts, clock: Clock
    ) -> Sample:
        """Return the sample of reading a prompt up to its first token."""
        start = clock()
        if case.kind == "pp" and Capability.CLASSIFY in self.capabilities:
            self.model.classify(texts)[0].raise_for_error()
        else:
            with closing(self.model.generate(texts[0], max_tokens=1)) as stream:
                next(stream, None)
                seconds = clock() - start
            return Sample(prompts.length(texts[0]) if case.kind == "pp" else 1, seconds)
        return Sample(prompts.length(texts[0]), clock() - start)

    def _decoded(self, case: Case, texts: Sequence[str], prompts: Prompts, clock: Clock) -> Sample:
        """Return the sample of the tokens after the first, without the prompt's time.

        The tokens are generated one by one.
        """
        config = CHAIN if case.kind == "sampling" else GenerateConfig()
        with closing(
            self.model.generate(texts[0], config, max_tokens=case.generated + 1)
        ) as stream:
            next(stream, None)
            start, count = clock(), 0
            for _ in stream:
                count += 1
            return Sample(count, clock() - start)

    def _classified(
        self, case: Case, texts: Sequence[str], prompts: Prompts, clock: Clock
    ) -> Sample:
        start = clock()
        for result in self.model.classify(texts, labels=LABELS):
            result.raise_for_error()
        return Sample(len(texts), clock() - start)

    def _generated(
        self, case: Case, texts: Sequence[str], prompts: Prompts, clock: Clock
    ) -> Sample:
        """Return the sample of all tokens of all rows, including the time of the short prompts."""
        start = clock()
        results = self.model.batch_generate(texts, max_tokens=case.generated)
        seconds = clock() - start
        return Sample(sum(len(result.raise_for_error().tokens) for result in results), seconds)
