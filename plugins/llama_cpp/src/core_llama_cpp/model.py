"""The loaded model of the public API: checks and bookkeeping around engine and passes."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Unpack

from core.errors import ModelClosedError, UnsupportedOptionError
from core.kit.clock import RequestClock, stopping
from core.kit.support import checked_layers, checked_pairs, checked_prompts
from core.options import GenerateConfig, RequestOptions
from core.protocols import Capability
from core.token_ids import TokenIds, token_pairs
from core.types import HiddenResult, Score
from core_llama_cpp.capabilities import MODEL_CAPABILITIES
from core_llama_cpp.classify.classifier import LlamaClassifier
from core_llama_cpp.classify.hidden import Looker
from core_llama_cpp.classify.passes import Passes
from core_llama_cpp.classify.scoring import Scorer
from core_llama_cpp.context.pool import Pool
from core_llama_cpp.decode.engine import LlamaEngine
from core_llama_cpp.loaded import LoadedModel
from core_llama_cpp.sampling import HONOURED
from core_runtime.classifying import ClassifyingModel
from core_runtime.owner import OwnerThread

_ONE_LAYER = (
    "llama.cpp only returns the last layer: use the default, layers=(-1,), or load the model as "
    "safetensors with an MLX backend (`infer-cli convert` converts it)."
)


class LlamaModel(ClassifyingModel):
    """A model in llama.cpp. See `core.TextModel` for the contract of every method."""

    honours = HONOURED

    def __init__(self, backend: str, loaded: LoadedModel, owner: OwnerThread) -> None:
        session = loaded.session
        self._loaded, self._owner = loaded, owner
        pool = Pool(session.cells, session.settings.n_seq_max)
        engine = LlamaEngine(loaded, self._owner, pool)
        super().__init__(backend, loaded, engine, MODEL_CAPABILITIES)
        self._shutdown = engine.shutdown
        self._passes = Passes(session, pool, engine, self._owner, loaded.prefixes)
        # For a model that is not closed: this must not hold a reference to the model.
        self._finalizer = weakref.finalize(self, _abandon, self._owner, loaded)

    @property
    def model_type(self) -> str:
        """``general.architecture`` of the GGUF header."""
        return self._loaded.info.architecture

    def check_open(self) -> None:
        """Raise `ModelClosedError` after ``close()``, and in a fork, for every operation alike."""
        super().check_open()
        self._owner.check_fork()

    def classifier(self, request: GenerateConfig, clock: RequestClock) -> LlamaClassifier:
        """See `ClassifyingModel`."""
        return LlamaClassifier(self._passes, self._loaded.tokenizer.token_text, request, clock)

    def score(
        self,
        prompts: Sequence[str],
        continuations: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        """Score each continuation after its prompt; an error stays in its row."""
        request = self.checked_request(Capability.SCORING, config, options)
        heads, tails = checked_pairs("score", prompts, continuations)
        with stopping(RequestClock(request)) as clock:
            scorer = Scorer(self._passes, clock)
            return self.read(scorer, *self.score_rows(heads, tails, clock), clock)

    def score_tokens(
        self,
        prompts: TokenIds,
        continuations: TokenIds,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        """`score` of token ids; see `core.TokenPrompts`."""
        request = self.checked_request(Capability.TOKEN_PROMPTS, config, options)
        pairs = token_pairs(prompts, continuations)
        with stopping(RequestClock(request)) as clock:
            scorer = Scorer(self._passes, clock)
            return self.read(scorer, *self.score_token_rows(pairs, clock), clock)

    def hidden_states(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        *,
        layers: Sequence[int] = (-1,),
        **options: Unpack[RequestOptions],
    ) -> list[HiddenResult]:
        """Read the last layer's state at each prompt's last token; an error stays in its row.

        llama.cpp shows no other layer: `UnsupportedOptionError` for one.
        """
        request = self.checked_request(Capability.HIDDEN_STATES, config, options)
        last = self.info.num_layers
        if checked_layers(layers, last) != (last,):
            raise UnsupportedOptionError("layers", self._backend, _ONE_LAYER)
        texts = checked_prompts("hidden_states", prompts)
        with stopping(RequestClock(request)) as clock:
            looker = Looker(self._passes, clock, last)
            return self.read(looker, *self.hidden_rows(texts, clock), clock)

    def release(self) -> None:
        """Free weights and cache now, after queued work."""
        self._owner.close(self._free)
        self._finalizer.detach()  # last: an interrupt before it leaves the finalizer in place

    def _free(self) -> None:
        self._shutdown(ModelClosedError())
        self._loaded.prefixes.clear()
        free(self._loaded)


def free(loaded: LoadedModel) -> None:
    """Free everything loaded, on the owner thread. May be called twice."""
    loaded.tokenizer.close(loaded.session.close)


def _abandon(owner: OwnerThread, loaded: LoadedModel) -> None:
    owner.post(lambda: free(loaded))
    owner.stop()
