"""The fake's language: its tokens, its distribution, its hidden states, and generations of it.

Each character is a token, and its id is its code point. So ``max_tokens`` counts characters, and a
test sees at once where a text was cut.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from core.errors import EmptyPromptError, PromptTooLongError
from core.kit.base import GeneratorStream, RequestClock
from core.kit.chat import RenderedPrompt, refuse_variables, render
from core.kit.support import unicode_error
from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig
from core.testing.script import Script
from core.types import FinishReason, GenerateMetrics, Message, Token

SPECIAL = ("<end>", "<system>", "<user>", "<assistant>")
END = 0x110000  # of a turn, and of a generation; Unicode ends before it
VOCAB_SIZE = END + len(SPECIAL)
LAYERS, STATE_SIZE = 1, 16

_IDS = {text: END + index for index, text in enumerate(SPECIAL)}
_SPLIT = re.compile("(" + "|".join(SPECIAL) + ")")
_LAST_TURN = re.compile(
    ".*<(?:system|user|assistant)>(.*)<end><assistant>|.*<assistant>(.*)", re.DOTALL
)
_PRINTABLE = range(0x20, 0x7F)
_ANSWER, _OTHER = 51.0, 1.0  # logits
_CHUNK = 64  # prompt tokens between two checks of cancel and timeout

# ---------------------------------------------------------------------------- tokens


def encode(text: str) -> list[int]:
    """Return the ids of a prompt; only a `RenderedPrompt` spells special tokens."""
    if isinstance(text, RenderedPrompt):
        return list(_rendered(text))
    return list(map(ord, text))


def _rendered(prompt: RenderedPrompt) -> Iterator[int]:
    for part in _SPLIT.split(prompt.marked):
        if part in _IDS:
            yield _IDS[part]
        else:
            yield from map(ord, part.replace(prompt.marker, ""))


def decode(ids: Sequence[int]) -> str:
    """Return the text of these ids without special tokens; U+FFFD for half a surrogate pair."""
    return "".join(map(_text, ids))


def _text(token_id: int) -> str:
    if not 0 <= token_id < END:
        return ""
    return "\ufffd" if 0xD800 <= token_id < 0xE000 else chr(token_id)


class Detokenizer:
    """A `core.kit.text_stream.Detokenizer`; no character is ever split over tokens."""

    incomplete = False

    def add(self, token_id: int) -> str:
        """Return the token's character."""
        return _text(token_id)

    def finish(self) -> str:
        """Return "": no text is incomplete."""
        return ""


def render_chat(
    messages: Sequence[Message], config: GenerateConfig | None = None
) -> RenderedPrompt:
    """Return the prompt of a conversation: each message as ``<role>content<end>``.

    The template reads no variables, so each one is an error.
    """
    if config is not None:
        refuse_variables(config)
    template = _turns if config is not None and config.continue_final_message else _template
    return render(messages, SPECIAL, template, config=config)


def _template(messages: Collection[Message]) -> str:
    return _turns(messages) + "<assistant>"


def _turns(messages: Collection[Message]) -> str:
    return "".join(f"<{message.role}>{message.content}<end>" for message in messages)


def question(prompt: str) -> str:
    """Return the key of a test's answers: the prompt, or the last message of a conversation."""
    if not isinstance(prompt, RenderedPrompt):
        return prompt
    turn = _LAST_TURN.fullmatch(prompt.marked)
    return (turn[1] or turn[2] or "").replace(prompt.marker, "") if turn else str(prompt)


# ---------------------------------------------------------------------------- distribution

# The answer's next character has the logit 51, every other printable ASCII character 1, and no
# other token is possible. So each sampling option has an effect, and yet up to a temperature of 2
# the answer is returned unchanged: another character has a probability of 1 in 10**9.


def draw(
    answer: int, seen: Collection[int], config: GenerateConfig, random: Random | None = None
) -> int:
    """Return a sampled token; the answer's next one is ``answer``, ``seen`` are earlier ones.

    ``random`` is the generator; without it a new one is made from the config's seed.
    """
    if config.temperature == 0 and config.repeat_penalty == 1:
        return answer
    scores = dict.fromkeys(_PRINTABLE, _OTHER) | {answer: _ANSWER}
    penalty = min(max(config.repeat_penalty, 1e-30), 1e30)  # so that no score becomes infinite
    for token in scores.keys() & set(seen):
        scores[token] /= penalty

    ranked = sorted(scores, key=lambda token: (-scores[token], token))
    if config.temperature == 0:
        return ranked[0]
    candidates = _filtered(ranked, scores, config)
    best = scores[ranked[0]]
    weights = [math.exp((scores[token] - best) / config.temperature) for token in candidates]
    return (random or Random(config.seed)).choices(candidates, weights)[0]


def logprob(token: int, answer: int) -> float:
    """Return the natural-log probability of a token before any sampling option."""
    others = len(_PRINTABLE) - (answer in _PRINTABLE)
    total = math.log1p(others * math.exp(_OTHER - _ANSWER))
    return -total if token == answer else _OTHER - _ANSWER - total


def _filtered(
    ranked: Sequence[int], scores: Mapping[int, float], config: GenerateConfig
) -> Sequence[int]:
    """Return the tokens that top_k, top_p and min_p keep, at temperature 1; at least one."""
    best = scores[ranked[0]]
    weights = {token: math.exp(scores[token] - best) for token in ranked}
    total, mass = math.fsum(weights.values()), 0.0
    candidates: list[int] = []
    for token in ranked[: config.top_k or None]:
        past_top_p = config.top_p < 1.0 and mass >= config.top_p
        if candidates and (past_top_p or weights[token] < config.min_p):
            break
        candidates.append(token)
        mass += weights[token] / total
    return candidates


# ---------------------------------------------------------------------------- hidden states


def hidden_state(prompt: str, layer: int) -> list[float]:
    """Return the state at a prompt's last token.

    After the only layer, each word of the prompt counts in one of the numbers, and the length is 1,
    or 0 without any word. So texts that share words have similar states, and a classifier learns
    from them as it would from a model's: slowly, and not everything.
    """
    if layer == 0:  # the embedding of the last token
        last = encode(prompt)[-1] % STATE_SIZE
        return [float(index == last) for index in range(STATE_SIZE)]

    values = [0.0] * STATE_SIZE
    for word in prompt.split():
        values[zlib.crc32(word.encode()) % STATE_SIZE] += 1.0
    length = math.hypot(*values) or 1.0
    return [value / length for value in values]


# ---------------------------------------------------------------------------- generations


@dataclass(frozen=True, slots=True)
class FakeEngine:
    """The parts common to all requests of one fake; ``check_open`` raises once it is closed."""

    script: Script
    context_length: int
    rotates: bool
    check_open: Callable[[], None]

    def ids(self, prompt: str) -> list[int]:
        """Return a prompt's tokens. Raises for an invalid prompt, and the test's own errors."""
        if not prompt:
            raise EmptyPromptError
        if error := unicode_error(prompt):
            raise error
        ids = encode(prompt)
        self.check_length(len(ids))
        self.script.check(question(prompt))
        return ids

    def check_length(self, length: int) -> None:
        """Raise `PromptTooLongError` for more tokens than the context holds."""
        if length > self.context_length:
            raise PromptTooLongError(length, self.context_length)

    def room(self, prompt_tokens: int) -> float:
        """Return the number of tokens that fit after a prompt: at least one, in a full context."""
        return math.inf if self.rotates else max(1, self.context_length - prompt_tokens)


class FakeGeneration:
    """One prompt's tokens, drawn as they are read.

    ``reason`` is None until they have ended; ``emitted`` counts them.
    """

    def __init__(
        self, engine: FakeEngine, prompt: str, config: GenerateConfig, clock: RequestClock
    ) -> None:
        self._engine, self._prompt, self._config, self._clock = engine, prompt, config, clock
        self._assembler = TokenAssembler(Detokenizer(), config.stop)
        self.reason: FinishReason | None = None
        self.prompt_tokens = self.emitted = 0
        self._prefill_seconds = 0.0

    def tokens(self) -> Iterator[Token]:
        """Yield the tokens, each as soon as its text is final. Raises the row's error."""
        ids = self._engine.ids(self._prompt)
        self.prompt_tokens = len(ids)
        for _ in range(0, len(ids), _CHUNK):  # as an engine reads a long prompt
            self._check()
        answer = self._engine.script.answer(question(self._prompt))
        self._prefill_seconds = self._clock.seconds

        for token in self._drawn(ids, answer):
            self.emitted += 1
            yield token

    def metrics(self) -> GenerateMetrics:
        """Return the cost of the row so far."""
        seconds = self._clock.seconds
        return GenerateMetrics(
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.emitted,
            prefill_seconds=self._prefill_seconds,
            decode_seconds=seconds - self._prefill_seconds,
            total_seconds=seconds,
        )

    def _check(self) -> None:
        self._engine.check_open()
        self._clock.check()

    def _drawn(self, ids: list[int], answer: str) -> Iterator[Token]:
        config, random = self._config, Random(self._config.seed)
        stops, seen = {END, *config.stop_tokens}, set(ids)
        limit = min(config.max_tokens, self._engine.room(len(ids)))
        count = 0
        while self.reason is None:
            # The end of the answer, or a stop token: nothing is emitted for it.
            self._check()
            likely = ord(answer[count]) if count < len(answer) else END
            token = draw(likely, seen, config, random)
            if token in stops:
                self.reason = "stop"
                break

            # Text is emitted once no stop string can begin in it.
            seen.add(token)
            count += 1
            own = logprob(token, likely) if config.return_logprobs else None
            yield from self._assembler.add(token, own)
            if self._assembler.stopped:
                self.reason = "stop"
            elif count >= limit:
                self.reason = "length"
        yield from self._assembler.finish()


class FinishedRow:
    """A generation that was read to its end; its tokens wait here, and its error after them."""

    def __init__(self, row: FakeGeneration) -> None:
        self._waiting: list[Token] = []
        self._error: Exception | None = None
        try:
            self._waiting.extend(row.tokens())  # tokens before an error are kept
        except Exception as error:  # noqa: BLE001 - like every error, it is raised by next()
            self._error = error
        self.reason, self._metrics = row.reason, row.metrics()

    def tokens(self) -> Iterator[Token]:
        """Yield the waiting tokens. Raises the row's error."""
        yield from self._waiting
        if self._error is not None:
            raise self._error

    def metrics(self) -> GenerateMetrics:
        """Return the cost of the row."""
        return self._metrics


class FakeStream(GeneratorStream):
    """The stream of one row, which ``begin`` makes at the first token.

    ``unread``: the cost if it is closed before.
    """

    def __init__(
        self,
        begin: Callable[[], FakeGeneration | FinishedRow],
        record: Callable[[GenerateMetrics], None],
        unread: GenerateMetrics,
    ) -> None:
        super().__init__(record)
        self._begin, self._unread = begin, unread
        self._row: FakeGeneration | FinishedRow | None = None

    def tokens(self) -> Generator[Token, None, FinishReason]:
        """Yield the row's tokens. Raises its error."""
        self._row = row = self._begin()
        yield from row.tokens()
        return row.reason or "error"

    def spent(self) -> GenerateMetrics:
        """Return the cost of the row."""
        return self._unread if self._row is None else self._row.metrics()

    def close(self) -> None:
        """Stop, as any stream."""
        super().close()
        if self._row is None:
            self._metrics = self._unread
