"""`CoreLM`: a model of core for lm-evaluation-harness."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Self

from lm_eval import utils
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from tqdm import tqdm

import core
from core.kit.support import unsupported
from core.secret import refuse_secrets
from core_lm_eval.generating import config_of
from core_lm_eval.likelihoods import Pair, scores

_BATCH = 256  # pairs of a call, which a backend divides into batches


@register_model("core")
class CoreLM(TemplateLM):  # type: ignore[misc]
    """A loaded model, or the path of one, for ``lm_eval.simple_evaluate(model=CoreLM(model))``.

    Contexts and continuations are tokenised as in lm-eval, so that metrics are comparable with its
    other models; continuations of one context share its prefill. ``batch_size``: pairs, or prompts,
    of a call. ``prefix_token_id`` precedes texts without a context: the model's BOS if its
    tokenizer prepends one, else required for such tasks. ``backend`` and ``options`` are those of
    `core.load_model`.

    Raises `core.UnsupportedOperationError` if the backend lacks the operation for a task.
    """

    def __init__(
        self,
        model: core.TextModel | str | os.PathLike[str] | None = None,
        *,
        path: str | None = None,
        batch_size: int | str | None = None,
        max_gen_toks: int = 256,
        prefix_token_id: int | None = None,
        backend: str = "",
        device: str | None = None,
        max_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        source: Any = path if model is None else model
        if source is None:
            raise TypeError("CoreLM() requires a loaded model, or the path of one.")
        own = isinstance(source, str | os.PathLike)
        self.model: Any = core.load_model(source, backend=backend, **options) if own else source
        self.name = os.path.basename(os.fspath(source)) if own else source.model_type
        self.max_gen_toks = max_gen_toks
        size = str(batch_size or "")  # "auto" without a number
        self._batch = int(size) if size.isdecimal() else _BATCH
        self._prefix = prefix_token_id
        self._templated = False

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None
    ) -> Self:
        """Create one from lm-eval's ``model_args``, which it writes into its results.

        Raises `core.InvalidOptionError` for an API key among them.
        """
        refuse_secrets(arg_dict, "lm-eval")
        created: Self = super().create_from_arg_obj(arg_dict, additional_config)
        return created

    # ----------------------------------------------------------------------- tokens

    @property
    def eot_token_id(self) -> int:
        """The token before a text without a context."""
        return self.prefix_token_id

    @property
    def prefix_token_id(self) -> int:
        """The given prefix token, or the BOS. Raises `core.InvalidOptionError` without either."""
        if self._prefix is None:
            lead = self.tok_encode("")
            if not lead:
                raise core.InvalidOptionError(
                    "prefix_token_id", None, "a token id, since this model's tokenizer adds no BOS"
                )
            self._prefix = lead[0]
        return self._prefix

    @property
    def max_length(self) -> int:
        """The model's context length in tokens."""
        return int(self.model.info.context_length)

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Return the ids of a text; after a chat template, text of special tokens is special."""
        model = self._with(core.Tokenizing, core.Capability.TOKENIZING)
        ids = model.encode(core.RenderedPrompt(string) if self._templated else string)
        if add_special_tokens is False and not self._templated:
            ids = ids[len(model.encode("")) :]
        return list(ids)

    # ----------------------------------------------------------------------- likelihoods

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        answers = []
        pairs = [(context, scored) for _, context, scored in requests]
        for (texts, *_), score in zip(
            self._with_progress(requests, disable_tqdm, "likelihoods"),
            self._scores(pairs),
            strict=True,
        ):
            answer = (score.logprob, score.is_greedy)
            self.cache_hook.add_partial("loglikelihood", texts, answer)
            answers.append(answer)
        return answers

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Return the log-likelihood of entire texts, in windows of the context, as in HFLM."""
        windows = [self._windows(request.args[0]) for request in requests]
        results = self._scores([pair for pairs in windows for pair in pairs])
        sums = []
        for request, pairs in zip(
            self._with_progress(requests, disable_tqdm, "whole texts"), windows, strict=True
        ):
            total = sum(next(results).logprob for _ in pairs)
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
            sums.append(total)
        return sums

    def _windows(self, text: str) -> list[Pair]:
        rolled = utils.get_rolling_token_windows(
            token_list=self.tok_encode(text),
            prefix_token=self.prefix_token_id,
            max_seq_len=self.max_length,
            context_len=1,
        )
        return [utils.make_disjoint_window(window) for window in rolled]

    def _scores(self, pairs: Sequence[Pair]) -> Iterator[core.Score]:
        model = self._with(core.TokenPrompts, core.Capability.TOKEN_PROMPTS)
        return scores(model, pairs, self._batch, self.max_length)

    # ----------------------------------------------------------------------- texts

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return the generated text after each context, up to a stop string.

        Requests of one kind run
        together."""
        groups: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            groups.setdefault(repr(request.args[1]), []).append(place)

        generated: dict[int, str] = {}
        progress = tqdm(total=len(requests), disable=disable_tqdm, desc="texts")
        for places in groups.values():
            options = requests[places[0]].args[1]
            config = config_of(options, self.max_gen_toks)
            for start in range(0, len(places), self._batch):
                some = places[start : start + self._batch]
                texts = self._texts([requests[place].args[0] for place in some], config)
                for place, text in zip(some, texts, strict=True):
                    self.cache_hook.add_partial("generate_until", requests[place].args, text)
                    generated[place] = text
                progress.update(len(some))

        progress.close()
        return [generated[place] for place in range(len(requests))]

    def _texts(self, contexts: Sequence[str], config: core.GenerateConfig) -> list[str]:
        prompts = [
            core.RenderedPrompt(context) if self._templated else context for context in contexts
        ]
        answers = self.model.batch_generate(prompts, config)
        return [answer.raise_for_error().text for answer in answers]

    # ----------------------------------------------------------------------- chats

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return the prompt of a conversation.

        Without ``add_generation_prompt`` its last message is the
        beginning of the answer."""
        model = self._with(core.Tokenizing, core.Capability.TOKENIZING)
        self._templated = True
        turns = [core.Message(turn["role"], turn["content"]) for turn in chat_history]  # type: ignore[arg-type]
        if add_generation_prompt:
            return str(model.render_chat(turns))
        *before, last = turns
        return str(model.render_chat(before)) + last.content

    def chat_template(self, chat_template: bool | str = False) -> str:
        """Return the description of the chat template that lm-eval records.

        It is the model's rendering of a greeting.
        """
        if not chat_template:
            return ""
        model = self._with(core.Tokenizing, core.Capability.TOKENIZING)
        return str(model.render_chat([core.Message("user", "Hello")]))

    @property
    def tokenizer_name(self) -> str:
        """The key of lm-eval's cache of requests."""
        return str(self.name)

    def _with(self, protocol: Any, needed: core.Capability) -> Any:
        if isinstance(self.model, protocol):
            return self.model
        raise unsupported(needed, type(self.model).__name__)

    @staticmethod
    def _with_progress(requests: Sequence[Any], disabled: bool, what: str) -> Any:
        return tqdm(requests, disable=disabled, desc=what)
