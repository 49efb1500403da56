"""A backend with its own file format: a Markov chain over the bytes of a text.

``python markov_backend.py TEXT NAME.markov`` makes a model of any text. It is one file: a line with
its numbers, and the text, from whose paragraphs the chain learns how to continue and where to end.
"""

import math
import os
import re
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from random import Random
from typing import Unpack

import core
from core.kit import support
from core.kit.base import GeneratorStream, RequestClock
from core.kit.text_stream import StreamDetokenizer, TokenAssembler
from core.models.files import open_model_file, read_model_file, resolve_path
from core.models.weight_files import unreadable
from core.options import GenerateConfig, resolve_generate
from core.types import FinishReason

NAME, SUFFIX, END, CONTEXT = "markov", ".markov", 256, 4096
DOES = frozenset(map(core.Capability, ("generate", "seed", "logprobs", "model_finding")))
HONOURS = frozenset({"temperature"})
HEADER = re.compile(rb"markov 1 ([1-9]) (\d{1,9})\n")  # the order, and the bytes of the text


def make_model(text: str, path: str | os.PathLike[str], order: int = 4) -> None:
    """Write the model of a text, which predicts each byte from the ``order`` bytes before it."""
    data = text.encode()
    Path(path).write_bytes(b"markov 1 %d %d\n" % (order, len(data)) + data)


def header_of(path: str) -> tuple[int, int, int]:
    """Return a model's order, and where its text begins and ends. Raises `core.ModelError`."""
    with open_model_file(path) as file:
        line = file.readline(64)
    if not (header := HEADER.fullmatch(line)):
        raise core.InvalidModelError(f"{path!r} does not begin as a {NAME} model. Make it again.")
    return int(header[1]), len(line), len(line) + int(header[2])


class Chain:
    """Count how often each byte, or `END`, follows each context of up to ``order`` bytes."""

    def __init__(self, text: bytes, order: int) -> None:
        self._order, self._counts = order, dict[bytes, Counter[int]]()
        for paragraph in filter(None, text.split(b"\n\n")):
            for place, token in enumerate([*paragraph, END]):
                for length in range(min(order, place) + 1):
                    context = paragraph[place - length : place]
                    self._counts.setdefault(context, Counter())[token] += 1

    def probabilities(self, ids: Sequence[int]) -> list[float]:
        """Return the probabilities of all tokens, mixed over contexts of every length."""
        mixed = [1 / (END + 1)] * (END + 1)
        for length in range(min(self._order, len(ids)) + 1):
            counts = self._counts.get(bytes(ids[len(ids) - length :]), Counter())
            share = 1 / (1 + sum(counts.values()))
            mixed = [share * probability for probability in mixed]
            for token, count in counts.items():
                mixed[token] += share * count
        return mixed


def draw(probabilities: Sequence[float], temperature: float, dice: Random) -> int:
    """Return the likeliest token, or one that is drawn at the temperature."""
    if not temperature:
        return max(range(len(probabilities)), key=probabilities.__getitem__)
    best = math.log(max(probabilities))
    weights = [math.exp((math.log(share) - best) / temperature) for share in probabilities]
    return dice.choices(range(len(weights)), weights)[0]


class MarkovStream(GeneratorStream):
    """The answer to one prompt. It works in the thread that reads it."""

    def __init__(self, model: "MarkovModel", prompt: str, request: GenerateConfig) -> None:
        super().__init__(model.record)
        self._model, self._prompt, self._request = model, prompt, request
        self._read = self._given = 0

    def next_token(self) -> core.Token:
        token = super().next_token()
        self._given += 1
        return token

    def spent(self) -> core.GenerateMetrics:
        seconds = self._clock.seconds
        return core.GenerateMetrics(self._read, 0, self._given, 0, seconds, seconds)

    def tokens(self) -> Generator[core.Token, None, FinishReason]:
        self._clock = clock = RequestClock(self._request)  # time begins with the first token
        request, chain = self._request, self._model.chain  # which close() takes from the model
        clock.check()  # raises if the request was cancelled or has timed out
        if error := support.text_error(self._prompt):
            raise error
        ids, limit = list(self._prompt.encode()), self._model.info.context_length
        if len(ids) > limit:
            raise core.PromptTooLongError(len(ids), limit)
        self._read = len(ids)
        texts = TokenAssembler(StreamDetokenizer(lambda id, first: bytes([id])), request.stop)
        dice, ends = Random(request.seed), {END, *request.stop_tokens}
        for _ in range(min(request.max_tokens, max(1, limit - len(ids)))):
            self._model.check_open()
            clock.check()
            probabilities = chain.probabilities(ids)
            if (token := draw(probabilities, request.temperature, dice)) in ends:
                yield from texts.finish()
                return "stop"
            ids.append(token)
            logprob = math.log(probabilities[token]) if request.return_logprobs else None
            yield from texts.add(token, logprob)  # the tokens whose text is settled now
            if texts.stopped:
                return "stop"
        yield from texts.finish()
        return "length"


class MarkovModel(core.TextModelBase):
    """A loaded chain. Its streams share no mutable state, so that any thread may use it."""

    def __init__(self, chain: Chain, context: int) -> None:
        super().__init__(NAME)
        self.chain, self.model_type = chain, NAME
        self.info = core.ModelInfo(NAME, END + 1, 1, END + 1, 0, 0, context, 0.0)

    def generate(self, prompt: str, config: GenerateConfig | None = None, /,
                 **options: Unpack[core.GenerateOptions]) -> MarkovStream:  # fmt: skip
        self.check_open()
        request = resolve_generate(config, options)
        support.refuse_options(request, core.Capability.GENERATE, NAME, DOES, honours=HONOURS)
        return MarkovStream(self, support.checked_text("generate", prompt), request)

    def release(self) -> None:
        self.chain = Chain(b"", 1)


class Markov:
    name, protocol, capabilities, formats = NAME, 2, DOES, frozenset({NAME})

    def available(self) -> bool:
        return True

    def unavailable_reason(self) -> str | None:
        return None

    def describe_model(self, path: str, /) -> core.DiscoveredModel | None:
        if not path.endswith(SUFFIX):  # check the name first: discovery passes every file
            return None
        size, problem = 0, ""
        try:
            (*_, end), size = header_of(path), os.stat(path).st_size
            problem = "" if size >= end else f"truncated ({size} of {end} B)"
        except FileNotFoundError:  # `core.ModelNotFoundError` is one
            return None
        except (core.InvalidModelError, core.ModelAccessError) as error:
            problem = unreadable(error)
        return core.DiscoveredModel(path, NAME, 0, 0, 1, NAME, size, "", problem=problem)

    def load_model(self, path: str | os.PathLike[str], config: core.LoadConfig) -> MarkovModel:
        support.refuse_load_options(config, NAME, DOES)
        if config.gpu_layers > 0:
            raise core.UnsupportedOptionError("gpu_layers", NAME)
        location = resolve_path(path)
        order, begin, end = header_of(location)
        data = read_model_file(location, 2**30)[begin:end]
        if len(data) < end - begin:
            raise core.InvalidModelError(f"{location!r} is truncated. Make it again.")
        return MarkovModel(Chain(data, order), config.context_len or CONTEXT)


if __name__ == "__main__":
    make_model(Path(sys.argv[1]).read_text("utf-8"), sys.argv[2])
