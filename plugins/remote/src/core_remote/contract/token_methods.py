"""`core.TokenPrompts` over core's API: prompts as ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core import validate
from core.errors import CoreError, GenerationCancelled
from core.kit.operations import TokenPromptsOperations
from core.options import GenerateConfig
from core.token_ids import TokenIds, token_pairs, token_prompt, token_prompts
from core.types import Score, TokenSequence
from core_remote.contract.model import ContractModel, no_score
from core_remote.contract.plans import CallPlan, RowsPlan
from core_remote.stream import RemoteStream


class TokenPromptsMethods(TokenPromptsOperations, ContractModel):
    """`core.TokenPrompts`."""

    def do_generate_tokens(
        self,
        prompts: TokenIds,
        request: GenerateConfig,
        attention_mask: TokenIds | None,
        num_samples: int,
    ) -> list[TokenSequence]:
        """Continue prompts of token ids, each ``num_samples`` times."""
        return self.answered(
            self.plan_generate_tokens(prompts, request, attention_mask, num_samples)
        )

    def do_stream_tokens(self, prompt: Sequence[int], request: GenerateConfig) -> RemoteStream:
        """Continue a prompt of token ids, token by token, like ``generate``."""
        row = token_prompt(prompt)
        return self.stream("stream_tokens", {"prompt": row}, request, None)

    def do_score_tokens(
        self, prompts: TokenIds, continuations: TokenIds, request: GenerateConfig
    ) -> list[Score]:
        """Score continuations of token ids, like ``score``."""
        return self.answered(self.plan_score_tokens(prompts, continuations, request))

    def plan_generate_tokens(
        self,
        prompts: TokenIds,
        request: GenerateConfig,
        attention_mask: TokenIds | None,
        num_samples: int,
    ) -> CallPlan[list[TokenSequence]]:
        """Return the plan of ``generate_tokens``."""
        samples = validate.integer("num_samples", num_samples, 1)
        rows = token_prompts(prompts, attention_mask)
        call = self.call("generate_tokens", {"prompts": rows, "num_samples": samples})
        failed = _stopped_sequence(rows, samples)
        return RowsPlan(call, TokenSequence, request, len(rows) * samples, {}, failed)

    def plan_score_tokens(
        self, prompts: TokenIds, continuations: TokenIds, request: GenerateConfig
    ) -> CallPlan[list[Score]]:
        """Return the plan of ``score_tokens``."""
        pairs = token_pairs(prompts, continuations)
        heads, tails = [head for head, _ in pairs], [tail for _, tail in pairs]
        call = self.call("score_tokens", {"prompts": heads, "continuations": tails})
        return RowsPlan(call, Score, request, len(pairs), {}, no_score)


def _stopped_sequence(
    rows: Sequence[Sequence[int]], samples: int
) -> Callable[[int, CoreError], TokenSequence]:
    def failed(place: int, error: CoreError) -> TokenSequence:
        ids = tuple(rows[place // samples])
        reason = "cancelled" if isinstance(error, GenerationCancelled) else "error"
        return TokenSequence(ids, (False,) * len(ids), reason, error)  # type: ignore[arg-type]

    return failed
