"""The optional protocols of `core.extensions` over llama.cpp's server, a class for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from core import validate
from core.kit.base import RequestClock, never_stop
from core.kit.chat import RenderedPrompt
from core.kit.operations import (
    ClassifyStreamingOperations,
    ScoringOperations,
    SubmittingOperations,
    TokenizingOperations,
    TokenPromptsOperations,
)
from core.kit.support import (
    block_sizes,
    checked_pairs,
    checked_prompts,
    checked_stream,
    checked_text,
    unicode_error,
)
from core.messages import checked_conversation
from core.options import GenerateConfig
from core.protocols import Capability
from core.token_ids import TokenIds, token_pairs, token_prompt, token_prompts
from core.types import ClassifyResult, Conversation, GenerateMetrics, Score, TokenSequence
from core_remote.counting import followed
from core_remote.llama_cpp.classification import RowClassifier
from core_remote.llama_cpp.model import LlamaServerModel, of_sample
from core_remote.stream import RemoteStream

_FIRST, _LARGEST = 16, 256  # prompts that are read together: the first answers come soon


class TokenizingMethods(TokenizingOperations, LlamaServerModel):
    """`core.Tokenizing`."""

    def encode(self, text: str) -> list[int]:
        """Return the ids that the server's model reads for a prompt, a leading BOS included."""
        self.check_usable()
        checked_text("encode", text)
        if error := unicode_error(text):
            raise error
        ids = self._connection.run(self._tokenizer.encode(text), never_stop)
        self._tokenizer.vocabulary.known(ids, self._server)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids, without special tokens."""
        self.check_usable()
        return self._tokenizer.decode(ids)

    def do_render_chat(self, messages: Conversation, request: GenerateConfig) -> RenderedPrompt:
        """Return the prompt that ``chat`` would continue."""
        turns = checked_conversation(messages)
        return self._connection.run(self.rendered(turns), never_stop)


class SubmittingMethods(SubmittingOperations, LlamaServerModel):
    """`core.Submitting`."""

    def do_submit(self, prompt: str, request: GenerateConfig) -> RemoteStream:
        """Send ``generate`` at once; its tokens wait in the stream."""
        [text] = checked_prompts("submit", [prompt])
        return self.continuing(text, request).begin_now()


class ClassifyStreamingMethods(ClassifyStreamingOperations, LlamaServerModel):
    """`core.ClassifyStreaming`."""

    def do_classify_iter(
        self, prompts: Iterable[str], request: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        """Yield results of ``classify``, a block of prompts at a time."""
        return self._blocks(iter(checked_stream("classify_iter", prompts)), request)

    def _blocks(self, rows: Iterator[str], request: GenerateConfig) -> Iterator[ClassifyResult]:
        done, cost = 0, GenerateMetrics()
        for size in block_sizes(_FIRST, _LARGEST):
            block = checked_prompts("classify_iter", list(islice(rows, size)), done)
            if not block:
                return
            done += len(block)
            # The time that the reader takes between two blocks is not the call's.
            clock = RequestClock(request, cost.total_seconds)
            results, more = self.classified(block, request, clock)
            cost = followed(cost, more)
            self.record(cost)
            yield from results


class ScoringMethods(ScoringOperations, LlamaServerModel):
    """`core.Scoring`."""

    def do_score(
        self, prompts: Sequence[str], continuations: Sequence[str], request: GenerateConfig
    ) -> list[Score]:
        """Return how likely ``continuations[i]`` is after ``prompts[i]``."""
        heads, tails = checked_pairs("score", prompts, continuations)
        reader = RowClassifier(self._server, self._tokenizer, request)
        works = [partial(reader.score, *pair) for pair in zip(heads, tails, strict=True)]
        return self.scored(works, reader, request)


class TokenPromptsMethods(TokenPromptsOperations, LlamaServerModel):
    """`core.TokenPrompts`."""

    def do_generate_tokens(
        self,
        prompts: TokenIds,
        request: GenerateConfig,
        attention_mask: TokenIds | None,
        num_samples: int,
    ) -> list[TokenSequence]:
        """Continue prompts of token ids, each ``num_samples`` times."""
        samples = validate.integer("num_samples", num_samples, 1)
        rows = token_prompts(prompts, attention_mask)
        configs = [of_sample(request, sample) for sample in range(samples)]
        results = self.together(
            [(partial(self._given, row), config) for row in rows for config in configs], request
        )
        return [
            TokenSequence.of(rows[place // samples], result) for place, result in enumerate(results)
        ]

    def do_stream_tokens(self, prompt: Sequence[int], request: GenerateConfig) -> RemoteStream:
        """Continue a prompt of token ids, token by token, like ``generate``."""
        row = token_prompt(prompt)
        return self.stream_of(partial(self._given, row), request, before=row)

    def do_score_tokens(
        self, prompts: TokenIds, continuations: TokenIds, request: GenerateConfig
    ) -> list[Score]:
        """Score continuations of token ids, like ``score``."""
        pairs = token_pairs(prompts, continuations)
        reader = RowClassifier(self._server, self._tokenizer, request)
        works = [partial(reader.score_tokens, *pair) for pair in pairs]
        return self.scored(works, reader, request)

    async def _given(self, ids: Sequence[int]) -> list[int]:
        return self._tokenizer.fitting(ids)


METHODS: dict[Capability, type[LlamaServerModel]] = {
    Capability.TOKENIZING: TokenizingMethods,
    Capability.SUBMITTING: SubmittingMethods,
    Capability.CLASSIFY_STREAMING: ClassifyStreamingMethods,
    Capability.SCORING: ScoringMethods,
    Capability.TOKEN_PROMPTS: TokenPromptsMethods,
}
"""The class that a model has for each optional protocol that its server's probe shows."""
