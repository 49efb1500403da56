"""A backend to begin with: put your engine into `_read`. What is not here is refused."""

from collections.abc import Sequence
from os import PathLike
from typing import Unpack

import core
from core.kit.base import RequestClock
from core.kit.support import checked_prompts, refuse_load_options, refuse_options
from core.models.files import read_config_json
from core.options import GenerateConfig, resolve_classify

NAME, DOES, FORMATS = "template", frozenset({core.Capability.CLASSIFY}), frozenset({"safetensors"})
HONOURS = frozenset[str]()  # {"temperature", ...}: what your engine honours


class TemplateModel(core.TextModelBase):
    def __init__(self, context: int) -> None:
        super().__init__(NAME)
        self.model_type, self.info = NAME, core.ModelInfo(NAME, 256, 1, 1, 0, 0, context, 0.0)

    def classify(self, prompts: Sequence[str], config: GenerateConfig | None = None, /,
                 **options: Unpack[core.ClassifyOptions]) -> list[core.ClassifyResult]:  # fmt: skip
        self.check_open()
        request = resolve_classify(config, options)
        refuse_options(request, core.Capability.CLASSIFY, NAME, DOES, honours=HONOURS)
        rows = [row.encode(errors="replace") for row in checked_prompts("classify", prompts)]
        clock = RequestClock(request)
        results = [self._read(ids, clock) for ids in rows]
        read = [len(ids) for ids, row in zip(rows, results, strict=True) if row.error is None]
        self.record(core.GenerateMetrics(sum(read), 0, len(read), 0, 0, clock.seconds))
        return results

    def _read(self, ids: bytes, clock: RequestClock) -> core.ClassifyResult:
        try:
            clock.check()  # raises when it was cancelled, or its time is up
            if not 0 < len(ids) <= (limit := self.info.context_length):
                raise core.PromptTooLongError(len(ids), limit) if ids else core.EmptyPromptError()
        except core.RequestError as error:
            return core.ClassifyResult(error=error)
        best = ids[sum(ids) % len(ids)]  # YOUR ENGINE: here, bytes are the tokens
        return core.ClassifyResult(core.Token(best, chr(best)))


class Template:
    name, protocol, capabilities, formats = NAME, 2, DOES, FORMATS

    def available(self) -> bool:
        return True

    def unavailable_reason(self) -> str | None:
        return None

    def load_model(self, path: str | PathLike[str], config: core.LoadConfig) -> TemplateModel:
        refuse_load_options(config, NAME, DOES)
        if config.gpu_layers > 0:
            raise core.UnsupportedOptionError("gpu_layers", NAME)
        if read_config_json(path).get("model_type") != NAME:
            raise core.UnsupportedModelError(f"{path!s} is not a model of the type {NAME!r}.")
        return TemplateModel(config.context_len or 4096)
