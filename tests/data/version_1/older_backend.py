"""A small backend of version 1 of the contract: it generates, scores and classifies bytes.

The next byte depends on a checksum of all bytes before it, so that every prompt has an answer of
its own. Its stream, its `score` and its list of options are those of version 1.
"""

import math
import zlib
from collections.abc import Iterator, Sequence
from os import PathLike
from random import Random
from typing import Unpack

import core
from core.capability import Capability
from core.clock import RequestClock
from core.labels import build_trie, label_paths, label_texts, score_labels, with_scores
from core.model_files import read_config_json
from core.options import GenerateConfig, resolve_classify, resolve_generate
from core.support import (
    checked_pairs,
    checked_prompts,
    refuse_load_options,
    refuse_options,
    unicode_error,
)
from core.text_stream import TokenAssembler

NAME, END, FORMATS = "older", 128, frozenset({"safetensors"})
DOES = frozenset(
    {
        *(Capability.GENERATE, Capability.BATCH_GENERATE, Capability.CLASSIFY, Capability.LABELS),
        *(Capability.LOGPROBS, Capability.SCORING),
    }
)
NOT_YET = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")


class Characters:
    """The detokenizer: each token is one character of ASCII."""

    incomplete = False

    def add(self, token_id: int) -> str:
        return chr(token_id)

    def finish(self) -> str:
        return ""


def encode(text: str, what: str = "prompt") -> bytes:
    if not text:
        raise core.EmptyPromptError
    if error := unicode_error(text, what):
        raise error
    return text.encode("ascii", errors="replace")


def logprobs(ids: bytes) -> list[float]:
    """The log-probabilities of the next token: a character of ASCII, or the end."""
    draw = Random(zlib.crc32(ids)).random
    logits = [6 * draw() + (4 if 32 <= token < END else 0) for token in range(END + 1)]
    total = math.log(sum(map(math.exp, logits)))
    return [logit - total for logit in logits]


class Stream(Iterator[core.Token]):
    def __init__(self, model: "Model", prompt: str, config: GenerateConfig) -> None:
        self.model, self.finish_reason, self.metrics = model, None, core.GenerateMetrics()
        self.run = self.tokens(prompt, config)
        self.started = self.closed = False

    def __next__(self) -> core.Token:
        self.started = True
        return next(self.run)

    def close(self) -> None:
        if not self.started:
            self.started, self.finish_reason = True, "cancelled"
        self.run.close()

    def tokens(self, prompt: str, config: GenerateConfig) -> Iterator[core.Token]:
        clock, count, ids, reason = RequestClock(config), 0, b"", "error"
        try:
            clock.check()
            ids, assembler = self.model.checked(prompt), TokenAssembler(Characters(), config.stop)
            limit = min(config.max_tokens, self.model.info.context_length - len(ids) + 1)
            text, drawn = ids, 0
            while True:
                clock.check()
                if drawn == limit:
                    reason, ready = "length", assembler.finish()
                else:
                    scores = logprobs(text)
                    best = max(range(END + 1), key=scores.__getitem__)
                    if best == END or best in config.stop_tokens:
                        reason, ready = "stop", assembler.finish()
                    else:
                        drawn, text = drawn + 1, text + bytes([best])
                        asked = scores[best] if config.return_logprobs else None
                        ready = assembler.add(best, asked)
                        reason = "stop" if assembler.stopped else reason
                for token in ready:
                    count += 1
                    yield token
                if reason != "error":
                    break
        except (GeneratorExit, core.GenerationCancelled):
            reason = "cancelled"
            raise
        finally:
            self.finish_reason = reason
            self.metrics = core.GenerateMetrics(
                len(ids), 0, count, 0.0, clock.seconds, clock.seconds
            )
            self.model.record(self.metrics)


class Model(core.TextModelBase):
    def __init__(self, context: int) -> None:
        super().__init__(NAME)
        self.model_type = NAME
        self.info = core.ModelInfo(NAME, END + 1, 1, 1, 0, 0, context, logit_tolerance=0.0)

    def checked(self, prompt: str) -> bytes:
        self.check_open()
        ids, limit = encode(prompt), self.info.context_length
        if len(ids) > limit:
            raise core.PromptTooLongError(len(ids), limit)
        return ids

    def generate(self, prompt: str, config: GenerateConfig | None = None, /,
                 **options: Unpack[core.GenerateOptions]) -> Stream:  # fmt: skip
        self.check_open()
        request = resolve_generate(config, options)
        refuse_options(request, Capability.GENERATE, NAME, DOES, NOT_YET)
        [text] = checked_prompts("generate", [prompt])
        return Stream(self, text, request)

    def batch_generate(self, prompts: Sequence[str], config: GenerateConfig | None = None, /,
                       **options: Unpack[core.GenerateOptions]) -> list[core.BatchResult]:  # fmt: skip
        self.check_open()
        request = resolve_generate(config, options, "batch_generate")
        refuse_options(request, Capability.BATCH_GENERATE, NAME, DOES, NOT_YET)
        clock = RequestClock(request)
        streams = [Stream(self, row, request) for row in checked_prompts("batch_generate", prompts)]
        results = [self._row(stream) for stream in streams]
        prompt_tokens = sum(stream.metrics.prompt_tokens for stream in streams)
        count = sum(len(result.tokens) for result in results)
        seconds = clock.seconds
        self.record(core.GenerateMetrics(prompt_tokens, 0, count, 0.0, seconds, seconds))
        return results

    def _row(self, stream: Stream) -> core.BatchResult:
        tokens, error = [], None
        try:
            for token in stream:
                tokens.append(token)
        except core.RequestError as problem:
            error = problem
        return core.BatchResult(tuple(tokens), stream.finish_reason, error)

    def classify(self, prompts: Sequence[str], config: GenerateConfig | None = None, /,
                 **options: Unpack[core.ClassifyOptions]) -> list[core.ClassifyResult]:  # fmt: skip
        self.check_open()
        request = resolve_classify(config, options)
        refuse_options(request, Capability.CLASSIFY, NAME, DOES, NOT_YET)
        rows, clock = checked_prompts("classify", prompts), RequestClock(request)
        results = [self._read(row, request, clock) for row in rows]
        count = sum(len(row) for row in rows)
        self.record(core.GenerateMetrics(count, total_seconds=clock.seconds))
        return results

    def _read(self, row: str, request: GenerateConfig, clock: RequestClock) -> core.ClassifyResult:
        try:
            clock.check()
            ids = self.checked(row)
        except core.RequestError as error:
            return core.ClassifyResult(error=error)
        scores = logprobs(ids)
        best = max(range(END + 1), key=scores.__getitem__)
        logprob = scores[best] if request.return_logprobs else None
        text = "" if best == END else chr(best)
        result = core.ClassifyResult(core.Token(best, text, logprob))
        if not request.labels:
            return result
        texts = label_texts(row, request.labels, request.label_prefix)
        paths = label_paths(ids, [ids + encode(text) for text in texts], list)[1]
        trie = build_trie(request.labels, paths)
        nodes = [logprobs(ids + bytes(prefix)) for prefix in trie.prefixes]
        values = [
            [node[token] for token in tokens]
            for node, tokens in zip(nodes, trie.children, strict=True)
        ]
        return with_scores(result, score_labels(trie, values))

    def score(self, prompts: Sequence[str], continuations: Sequence[str], /) -> list[core.Score]:
        self.check_open()
        clock = RequestClock(GenerateConfig())
        pairs = list(zip(*checked_pairs("score", prompts, continuations), strict=True))
        scores = [self._score(*pair) for pair in pairs]
        count = sum(len(prompt) + len(rest) for prompt, rest in pairs)
        self.record(core.GenerateMetrics(count, total_seconds=clock.seconds))
        return scores

    def _score(self, prompt: str, continuation: str) -> core.Score:
        try:
            ids, rest = self.checked(prompt), encode(continuation, "continuation")
            if len(ids) + len(rest) - 1 > self.info.context_length:
                raise core.PromptTooLongError(len(ids) + len(rest), self.info.context_length)
        except core.RequestError as error:
            return core.Score(error=error)
        steps = [logprobs(ids + rest[:end]) for end in range(len(rest))]
        read = [step[token] for step, token in zip(steps, rest, strict=True)]
        return core.Score(sum(read), tuple(read), all(map(float.__eq__, read, map(max, steps))))


class Older:
    name, protocol, capabilities, formats = NAME, 1, DOES, FORMATS

    def available(self) -> bool:
        return True

    def unavailable_reason(self) -> str | None:
        return None

    def load_model(self, path: str | PathLike[str], config: core.LoadConfig) -> Model:
        refuse_load_options(config, NAME, DOES)
        if config.gpu_layers > 0:
            raise core.UnsupportedOptionError("gpu_layers", NAME)
        facts = read_config_json(path)
        if facts.get("model_type") != NAME:
            raise core.UnsupportedModelError(f"{path!s} is not a model of the type {NAME!r}.")
        context = int(facts.get("max_position_embeddings", 512))
        if config.context_len > context:
            raise core.InvalidOptionError("context_len", config.context_len, f"at most {context}")
        return Model(config.context_len or context)
