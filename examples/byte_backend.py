"""A complete backend: a byte-frequency language model that scores labels like any other."""

import math
from collections import Counter
from collections.abc import Sequence
from os import PathLike
from typing import Unpack

import core
from core.clock import RequestClock
from core.labels import build_trie, label_texts, score_labels, with_scores
from core.options import resolve_classify
from core.support import checked_prompts, refuse_load_options, refuse_options

DOES = frozenset({core.Capability.CLASSIFY, core.Capability.LABELS})
NOT_YET = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")


class ByteModel(core.TextModelBase):  # refuses what is not overridden; has close() and `with`
    model_type = "bytes"
    info = core.ModelInfo("bytes", 256, 1, 1, 0, 0, context_length=10**6, logit_tolerance=0.0)

    def classify(
        self,
        prompts: Sequence[str],
        config: core.GenerateConfig | None = None,
        /,
        **options: Unpack[core.ClassifyOptions],
    ) -> list[core.ClassifyResult]:
        self.check_open()
        request = resolve_classify(config, options)
        refuse_options(request, core.Capability.CLASSIFY, "bytes", DOES, NOT_YET)
        clock = RequestClock(request)
        return [read(prompt, request, clock) for prompt in checked_prompts("classify", prompts)]


def read(prompt: str, request: core.GenerateConfig, clock: RequestClock) -> core.ClassifyResult:
    try:
        clock.check()  # raises when `cancel` was set, as on Ctrl-C in infer-cli, or time is up
    except core.RequestError as error:
        return core.ClassifyResult(error=error)
    if not prompt:
        return core.ClassifyResult(error=core.EmptyPromptError())
    seen = Counter(prompt.encode())
    logprobs = [math.log((seen[byte] + 1) / (seen.total() + 256)) for byte in range(256)]
    best = logprobs.index(max(logprobs))
    result = core.ClassifyResult(token=core.Token(best, chr(best)))
    if not request.labels:
        return result
    texts = label_texts(prompt, request.labels, request.label_prefix)
    trie = build_trie(request.labels, [tuple(text.encode()) for text in texts])
    asked = [[logprobs[byte] for byte in following] for following in trie.children]
    return with_scores(result, score_labels(trie, asked))


class Bytes:
    name, protocol, capabilities = "bytes", core.PROTOCOL_VERSION, DOES
    formats = frozenset({"safetensors", "gguf"})

    def available(self) -> bool:
        return True

    def unavailable_reason(self) -> str | None:
        return None

    def load_model(self, path: str | PathLike[str], config: core.LoadConfig) -> ByteModel:
        refuse_load_options(config, self.name, DOES)
        return ByteModel(self.name)
