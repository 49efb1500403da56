"""The fake's language: its tokens, its distribution, and its hidden states.

Each character is a token, and its id is its code point. So ``max_tokens`` counts characters, and a
test sees at once where a text was cut.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random

from core.kit.chat import RenderedPrompt, refuse_variables, render
from core.options import GenerateConfig
from core.types import Message

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
