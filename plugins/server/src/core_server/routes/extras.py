"""Extras of an OpenAI answer: the tokens of an echoed prompt, and the likeliest tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.errors import EmptyPromptError
from core.extensions import Tokenizing
from core.protocols import Capability
from core.types import Token
from core_server.bounds import bytes_of_text
from core_server.queues.batch_calls import LikeliestCall, ScoreCall
from core_server.request_body import RequestBody
from core_server.served import Served
from core_wires.completions import NO_EXTRAS, Extras
from core_wires.generation import GenerationRequest


async def extras_of(
    served: Served, request: GenerationRequest, body: RequestBody
) -> tuple[Extras, int]:
    """Return the extras, and the prompt's token count if nothing else provides it.

    Raises `core.UnsupportedOperationError` if the backend does not report them, and
    `core.EmptyPromptError` if an empty prompt is to be echoed.
    """
    if request.likeliest:
        return Extras(likeliest=await _likeliest(served, request, body)), 0
    if not request.echo:
        return NO_EXTRAS, 0
    if not request.prompt:
        raise EmptyPromptError
    if request.options.get("return_logprobs"):
        prompt = await _echoed(served, request.prompt, body)
        return Extras(prompt=prompt), len(prompt)
    if request.generates or not isinstance(served.model, Tokenizing):
        return NO_EXTRAS, 0
    return NO_EXTRAS, len(await _ids(served.model, request.prompt, body))


async def _ids(model: Tokenizing, prompt: str, body: RequestBody) -> list[int]:
    with body.part() as share:
        share.take(bytes_of_text(prompt))
        return await body.run(lambda: model.encode(prompt))


async def _likeliest(
    served: Served, request: GenerationRequest, body: RequestBody
) -> Sequence[Token]:
    served.needs(Capability.LOGITS, "the likeliest tokens")
    prompt = request.prompt
    if request.kind == "chat":  # the prompt of the answer
        render, config = served.tokenizing().render_chat, request.config(served.defaults)
        prompt = await body.run(lambda: render(request.messages, config))
    answered = await served.questions.run([prompt], LikeliestCall(request.likeliest))
    return answered.results[0]


async def _echoed(served: Served, prompt: str, body: RequestBody) -> list[Token]:
    """Return the prompt's tokens, each with its log-probability after the preceding ones."""
    served.needs(Capability.TOKEN_PROMPTS, "log-probabilities of a prompt")
    model = served.tokenizing()
    ids = await _ids(model, prompt, body)
    logprobs: list[float | None] = [None]
    if len(ids) > 1:
        answered = await served.questions.run([(ids[:1], ids[1:])], ScoreCall())
        logprobs += answered.results[0].raise_for_error().token_logprobs
    texts = await body.run(lambda: [*_texts(model, ids)])
    return [Token(*parts) for parts in zip(ids, texts, logprobs, strict=True)]


def _texts(model: Tokenizing, ids: Sequence[int]) -> Iterator[str]:
    """Yield the text of each token in the context of the previous one.

    Some begin with a space only there.
    """
    before = ""
    for index, id in enumerate(ids):
        alone = model.decode([id])
        pair = model.decode(ids[max(0, index - 1) : index + 1])
        yield pair.removeprefix(before) if pair.startswith(before) else alone
        before = alone
