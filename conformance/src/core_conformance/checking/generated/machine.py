"""Runs generated sequences of calls: streams stay open, are read on, closed, cancelled.

Each step must give what the yardstick gave to the same request, made once and alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from core.errors import GenerationCancelled, ModelBusyError, RequestError
from core.protocols import Capability, TokenStream
from core.types import Token
from core_conformance.checking.ask import Answer, begin, evidence
from core_conformance.checking.check import must
from core_conformance.checking.generated.world import Options, Outcome, World, same_error
from core_conformance.checking.script import record
from core_conformance.checking.script.spelling import Named

MOST = 6
"""Tokens of an answer; a step that takes this many reads its stream to the end."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call, or what is done to an open stream; the numbers choose among what there is."""

    kind: str
    first: int
    second: int
    take: int


@dataclass(frozen=True, slots=True)
class Program:
    """Steps over some prompts and options."""

    prompts: tuple[str, ...]
    options: tuple[Options, ...]
    steps: tuple[Step, ...]


@dataclass(slots=True)
class Open:
    """A stream, what was read of it, and what it is to give."""

    name: str
    stream: TokenStream
    wanted: Outcome
    prompt: str
    drawn: bool
    cancel: Named | None
    tokens: list[Token] = field(default_factory=list)


class Machine:
    """Runs the steps of one program."""

    def __init__(self, world: World, program: Program) -> None:
        self.world, self.program = world, program
        self.model: Any = world.model
        self.open: list[Open] = []
        self._names = 0

    def prompt(self, number: int) -> str:
        """Return one of the program's prompts."""
        return self.program.prompts[number % len(self.program.prompts)]

    def rows(self, step: Step) -> list[str]:
        """Return up to four prompts, some of them duplicates."""
        return [self.prompt(step.first + place * step.second) for place in range(1 + step.take % 4)]

    def pair(self, step: Step) -> tuple[str, str]:
        """Return a prompt, and the beginning of one as its continuation."""
        return self.prompt(step.first), self.prompt(step.second)[:12]

    def options(self, step: Step) -> Options:
        """Return the program's options that the step chooses, for an answer of `MOST` tokens."""
        return evidence(self.world.subject) | self._drawing(step) | {"max_tokens": MOST}

    def drawn(self, step: Step) -> bool:
        """Return whether more than the best token counts."""
        return bool(self._drawing(step))

    def _drawing(self, step: Step) -> Options:
        return self.program.options[step.second % len(self.program.options)]

    def name(self, kind: str) -> str:
        """Return a name for the script that nothing has yet."""
        self._names += 1
        return f"{kind}{self._names}"

    def close(self) -> None:
        """Close what is still open."""
        for stream in self.open:
            record.note(f"{stream.name}.close()")
            stream.stream.close()
        self.open.clear()

    def finish(self) -> None:
        """Read what is still open to its end."""
        for stream in list(self.open):
            with suppress(ModelBusyError):
                self.read(stream, MOST)

    def begin(self, step: Step, operation: Capability, cancel: Named | None = None) -> Open | None:
        """Open a stream, and read some of its tokens; all of them at the highest number."""
        prompt, options = self.prompt(step.first), self.options(step)
        wanted = self.world.answered(operation, prompt, options)
        own = options | ({} if cancel is None else {"cancel": cancel})
        try:
            stream = begin(operation, self.model, prompt, own)
        except RequestError as error:
            same_error(wanted[1], error, f"{operation} of {prompt!r:.80}")
            return None
        name = self.name("stream")
        record.named(name)
        begun = Open(name, stream, wanted, prompt, self.drawn(step), cancel)
        self.open.append(begun)
        return begun if self.read(begun, step.take) else None

    def read(self, stream: Open, count: int) -> bool:
        """Read tokens and see that they are the wanted ones; False when the stream has ended."""
        whole = count >= MOST
        line = record.note(reading(stream.name, None if whole else count))

        try:
            for _ in range(10**6 if whole else count):
                stream.tokens.append(next(stream.stream))
        except StopIteration:
            self.open.remove(stream)
            self._ended(stream)
            return False
        except ModelBusyError:
            line.raised = True
            self.open.remove(stream)
            stream.stream.close()
            raise
        except RequestError as error:
            line.raised = True
            self.open.remove(stream)
            if not isinstance(error, GenerationCancelled) or stream.cancel is None:
                same_error(stream.wanted[1], error, self._where(stream))
            return False

        self._begun(stream)
        return True

    def _begun(self, stream: Open) -> None:
        """Raise `Violation` unless the tokens read begin the wanted answer."""
        wanted, _ = stream.wanted
        size = len(stream.tokens)
        if size:
            pair = (
                Answer(wanted.tokens[:size], None, wanted.prompt),
                Answer((*stream.tokens,), None),
            )
            self.world.agree([pair], f"alone, and as {self._where(stream)}", stream.drawn)

    def _ended(self, stream: Open) -> None:
        wanted, error = stream.wanted
        what = self._where(stream)
        must(error is None, f"{what} ended normally, but alone it raised {error!r}")
        if stream.cancel is not None and stream.cancel.is_set():
            self._begun(stream)
        else:
            answer = Answer((*stream.tokens,), stream.stream.finish_reason)
            self.world.same_answer(wanted, answer, f"alone, and as {what}", stream.drawn)

    def _where(self, stream: Open) -> str:
        return f"{stream.name} among other calls: {stream.prompt!r:.80}"

    def same_beginning(self, prompt: str, tokens: Sequence[Token], step: Step, what: str) -> None:
        """Raise `Violation` unless these tokens begin the answer that the prompt has alone."""
        options = self.options(step)
        wanted, _ = self.world.answered(Capability.BATCH_GENERATE, prompt, options)
        begun = Answer((*tokens,), None)
        pair = Answer(wanted.tokens[: len(tokens)], None, prompt), begun
        self.world.agree([pair], f"alone, and by {what}: {prompt!r:.80}", self.drawn(step))


def reading(name: str, count: int | None) -> str:
    """Return the line that prints the first items of an iterator of this name.

    All of them by default.
    """
    return (
        f"print(*{name})"
        if count is None
        else (f"print(*(next({name}, None) for _ in range({count})))")
    )
