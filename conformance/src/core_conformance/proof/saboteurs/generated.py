"""Saboteurs that are wrong about few inputs, or only after certain calls: no example shows them."""

from __future__ import annotations

import dataclasses
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig
from core.types import ClassifyResult, Score, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference import vocabulary
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream, SubmittedStream


@saboteur("nul-ends-a-row", "in a batch a prompt ends at its first NUL, as a string of C does")
class NulEndsARow(Batch):
    def __init__(self, engine: Engine, prompts: Sequence[str], config: GenerateConfig) -> None:
        rows = [prompt.partition("\0")[0] or prompt for prompt in prompts]
        super().__init__(engine, rows, config)


@saboteur("nul-ends-a-text", "encode reads a text up to its first NUL")
class NulEndsAText(ReferenceModel):
    def encode(self, text: str) -> list[int]:
        return super().encode(text.partition("\0")[0])


@saboteur(
    "counted-in-utf16",
    "the last prompt of a micro-batch loses a token for each character that UTF-16 counts twice",
)
class CountedInUtf16(Classifier):
    def read(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        astral = sum(ord(character) > 0xFFFF for character in prompts[-1])
        if len(prompts) == 1 or not astral:
            return super().read(prompts)
        rows = [*prompts[:-1], prompts[-1][:-astral] or prompts[-1]]
        return super().read(rows)


class _WrongOnce(Engine):
    """Forgets the first token of the prompt that it reads next, once told to."""

    signalled = False

    def prompt_ids(self, prompt: str) -> list[int]:
        ids = super().prompt_ids(prompt)
        if self.signalled and len(ids) > 2:
            self.signalled = False
            return ids[1:]
        return ids


@saboteur(
    "after-a-closed-request",
    "what is read after a submitted request that was closed half read lacks its first token",
)
class BehindAClosedRequest(ReferenceModel):
    engine_class = _WrongOnce

    class submitted_class(SubmittedStream):
        def __init__(self, *arguments: Any) -> None:
            self._given = 0
            super().__init__(*arguments)

        def next_token(self) -> Token:
            token = super().next_token()
            self._given += 1
            return token

        def close(self) -> None:
            half = self._given > 0 and not self.finish_reason
            super().close()
            if half:
                self._stream.engine.signalled = True  # type: ignore[attr-defined]


@saboteur(
    "after-another-close",
    "a stream that is open while another model is closed forgets its last token then",
)
class BehindAnotherClose(ReferenceModel):
    closed: ClassVar[int] = 0

    def release(self) -> None:
        super().release()
        BehindAnotherClose.closed += 1

    class stream_class(ReferenceStream):
        def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
            closed = BehindAnotherClose.closed
            for token in super().generate(row, meter):
                yield token
                if closed != BehindAnotherClose.closed:
                    closed = BehindAnotherClose.closed
                    del row.context[-1:]


@saboteur(
    "one-label-in-another",
    "a label that another one begins with is judged as that other one where the prompt ends in "
    "white space",
)
class OneLabelInAnother(Classifier):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        if not result.logprobs or not prompt[-1:].isspace():
            return result
        logprobs = dict(result.logprobs)
        for label in logprobs:
            longer = [other for other in logprobs if other != label and other.startswith(label)]
            if longer:
                logprobs[label] = result.logprobs[longer[0]]
        return dataclasses.replace(result, logprobs=logprobs)


@saboteur("stop-decomposed", "stop strings are looked for in their decomposed form")
class StopDecomposed(Generation):
    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        stops = [unicodedata.normalize("NFD", stop) for stop in config.stop]
        self.assembler = TokenAssembler(vocabulary.Detokenizer(), stops)


@saboteur(
    "scored-in-white-space",
    "a continuation that begins with other white space than a space is scored as with one",
)
class ScoredInWhiteSpace(ReferenceModel):
    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *rest: Any, **options: Any
    ) -> list[Score]:
        texts = [
            f" {text[1:]}" if text[:1].isspace() and text[1:] else text for text in continuations
        ]
        return super().score(prompts, texts, *rest, **options)


@saboteur(
    "beside-a-begun-stream",
    "a batch that runs during an open stream draws with that stream's options",
)
class BesideABegunStream(ReferenceModel):
    class stream_class(ReferenceStream):
        def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
            begun = self.engine.__dict__.setdefault("begun", [])
            begun.append(self.config)
            try:
                yield from super().generate(row, meter)
            finally:
                begun.remove(self.config)

    class batch_class(Batch):
        def __init__(self, engine: Engine, prompts: Sequence[str], config: GenerateConfig) -> None:
            begun = engine.__dict__.get("begun")
            if begun:
                fewer = min(config.max_tokens, begun[0].max_tokens)
                own = {"cancel": config.cancel, "timeout": config.timeout}
                config = dataclasses.replace(begun[0], max_tokens=fewer, **own)
            super().__init__(engine, prompts, config)
