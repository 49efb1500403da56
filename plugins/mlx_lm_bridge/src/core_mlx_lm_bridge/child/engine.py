"""mlx-lm as the worker's engine: a model, and one generation at a time. Imports MLX on `load`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from core_mlx_lm_bridge.child.blas import ensure_blas
from core_mlx_lm_bridge.child.facts import facts
from core_mlx_lm_bridge.child.failures import (
    Failure,
    not_finite,
    not_installed,
    of_generation,
    of_load,
)
from core_mlx_lm_bridge.child.prompts import family_template, token_ids
from core_mlx_lm_bridge.child.rope_keys import repaired
from core_mlx_lm_bridge.child.sampling import OwnLogprobs, penalties, sampler
from core_mlx_lm_bridge.ignored import ignored, refusal_of, small_json
from core_mlx_lm_bridge.protocol import Chat, Done, Generate, Load, Ok, TokenAnswer


class _Cancelled(Exception):
    """The internal error that ends a cancelled prefill between two chunks."""


class MlxLmEngine:
    """An engine with one model of mlx-lm. It runs on one thread, which owns MLX's streams."""

    _mx: Any
    _lm: Any
    _model: Any = None
    _tokenizer: Any
    _blas: str
    _eos: frozenset[int]
    _family_template: str | None
    _facts: Ok
    _prefill_step_size: int

    def load(self, request: Load) -> Ok:
        """Load a directory. Raises `Failure`."""
        self._import(request.cpu)
        self._model = None  # before the next one takes memory
        window = self._ignored_window(request.path)
        try:
            self._model, self._tokenizer, config = self._loaded(request)
        except Exception as error:
            raise of_load(error, request.path) from error
        self._family_template = family_template(self._tokenizer, request.chat_formats)
        self._eos = frozenset(self._tokenizer.eos_token_ids)
        self._prefill_step_size = request.prefill_step_size
        self._facts = facts(self._mx, self._model, config, request.context_len)
        self._facts.mlx_lm, self._facts.blas = str(self._lm.__version__), self._blas
        self._facts.ignored_window = window
        return self._facts

    def info(self) -> Ok:
        """Return the facts of the loaded model. Raises `Failure` without a model."""
        self._check_loaded()
        return self._facts

    def generate(
        self, request: Generate | Chat, cancelled: Callable[[], bool]
    ) -> Iterator[TokenAnswer | Done]:
        """Yield the output of ``mlx_lm.stream_generate`` as messages. Raises `Failure`."""
        self._check_loaded()
        if cancelled():
            yield Done(id=request.id, finish_reason="cancelled")
            return

        ids = token_ids(self._tokenizer, request, self._family_template)
        limit = self._facts.context_length
        if len(ids) > limit:
            raise Failure("PromptTooLongError", "", len(ids), limit)

        try:
            yield from self._generated(request, ids, cancelled)
        except _Cancelled:
            yield Done(id=request.id, finish_reason="cancelled", prompt_tokens=len(ids))
        except Exception as error:
            raise of_generation(error, len(ids)) from error

    def _import(self, cpu: bool) -> None:
        self._blas = ensure_blas()
        try:
            self._mx = import_module("mlx.core")
            if cpu:  # mlx-lm chooses its stream when it is imported
                self._mx.set_default_device(self._mx.cpu)
            self._lm = import_module("mlx_lm")
            self._sample_utils = import_module("mlx_lm.sample_utils")
            self._naive = import_module("mlx_lm.tokenizer_utils").NaiveStreamingDetokenizer
        except ImportError as error:
            raise not_installed(error) from error

    def _loaded(self, request: Load) -> Any:
        utils = import_module("mlx_lm.utils")
        changes = repaired(utils.load_config(utils.Path(request.path)))
        return self._lm.load(
            request.path,
            model_config=changes,
            adapter_path=request.adapter_path,
            return_config=True,
        )

    def _ignored_window(self, path: str) -> int:
        """Return the sliding window that mlx-lm ignores. Raises `Failure` for other keys."""
        config = small_json(Path(path) / "config.json")
        if not config:
            return 0  # the load reports it
        dropped = ignored(Path(self._lm.__file__).parent, path, config)
        if dropped.keys:
            raise Failure("UnsupportedModelError", refusal_of(dropped.keys))
        return dropped.window

    def _check_loaded(self) -> None:
        if self._model is None:
            raise Failure("ProtocolError", "No model is loaded. Send a load request first.")

    def _generated(
        self, request: Generate | Chat, ids: list[int], cancelled: Callable[[], bool]
    ) -> Iterator[TokenAnswer | Done]:
        # With a penalty, the model's own log-probabilities are noted before it changes the logits.
        processors = penalties(self._sample_utils, request)
        own = OwnLogprobs(self._mx) if processors and request.return_logprobs else None
        processors = [own, *processors] if own else processors

        stream = self._stream(request, ids, processors, cancelled)
        late = isinstance(self._tokenizer.detokenizer, self._naive)  # it may hold part of a text

        try:
            for response in stream:
                _check_finite(response)
                stopped = response.finish_reason == "stop"
                if not stopped:
                    yield _token(request, response, own, late)
                if response.finish_reason or cancelled():
                    reason = response.finish_reason or "cancelled"
                    yield self._done(request.id, response, reason, response.text * stopped)
                    return
        finally:
            stream.close()  # it holds MLX's default stream while it is open

    def _stream(
        self,
        request: Generate | Chat,
        ids: list[int],
        processors: list[Any],
        cancelled: Callable[[], bool],
    ) -> Any:
        def progress(done: int, total: int) -> None:
            if cancelled():
                raise _Cancelled

        seed = request.seed
        self._mx.random.seed(int.from_bytes(os.urandom(8), "big") if seed is None else seed)
        self._tokenizer.eos_token_ids = self._eos.union(request.stop_tokens)
        return self._lm.stream_generate(
            self._model,
            self._tokenizer,
            ids,
            max_tokens=min(request.max_tokens, max(1, self._facts.context_length - len(ids))),
            sampler=sampler(self._sample_utils, request, self._facts.vocab_size),
            logits_processors=processors or None,
            prefill_step_size=self._prefill_step_size,
            prompt_progress_callback=progress,
        )

    def _done(self, id: int, response: Any, reason: str, tail: str) -> Done:
        return Done(
            id=id,
            finish_reason=reason,
            token=tail,
            prompt_tokens=response.prompt_tokens,
            prompt_tps=response.prompt_tps,
            generation_tokens=response.generation_tokens,
            generation_tps=response.generation_tps,
            peak_memory_bytes=self._mx.get_peak_memory(),
            active_memory_bytes=self._mx.get_active_memory(),
        )


def _check_finite(response: Any) -> None:
    """Raise `Failure` if the token was drawn from logits with NaN or infinity.

    One NaN or +infinity makes the log-probability of every token NaN or -infinity.
    """
    if not math.isfinite(response.logprobs[response.token].item()):
        raise not_finite()


def _token(
    request: Generate | Chat, response: Any, own: OwnLogprobs | None, late: bool
) -> TokenAnswer:
    logprob = None
    if request.return_logprobs:
        values = own.take() if own else response.logprobs
        logprob = float(values[response.token].item())
    return TokenAnswer(
        id=request.id,
        token=response.text,
        token_id=response.token,
        logprob=logprob,
        open=late or not response.text,
    )
