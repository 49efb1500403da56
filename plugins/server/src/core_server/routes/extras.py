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
from core_wires.completions import Extras
from core_wires.generation import GenerationRequest


async def extras_of(
    served: Served, request: GenerationRequest, body: RequestBody
) -> tuple[list[Extras], list[int]]:
    """Return the extras of each prompt, and its token count if nothing else provides it.

    Raises `core.UnsupportedOperationError` if the backend does not report them, and
    `core.EmptyPromptError` if an empty prompt is to be echoed.
    """
    none = [0] * len(request.prompts)
    if request.likeliest:
        likeliest = await _likeliest(served, request, body)
        return [Extras(likeliest=tokens) for tokens in likeliest], none
    if not request.echo:
        return [], none
    if not all(request.prompts):
        raise EmptyPromptError
    if request.options.get("return_logprobs"):
        echoed = await _echoed(served, request.prompts, body)
        return [Extras(prompt=tokens) for tokens in echoed], [*map(len, echoed)]
    if request.generates or not isinstance(served.model, Tokenizing):
        return [], none
    return [], [len(await _ids(served.model, prompt, body)) for prompt in request.prompts]


async def _ids(model: Tokenizing, prompt: str, body: RequestBody) -> list[int]:
    with body.part() as share:
        share.take(bytes_of_text(prompt))
        return await body.run(lambda: model.encode(prompt))


async def _likeliest(
    served: Served, request: GenerationRequest, body: RequestBody
) -> Sequence[Sequence[Token]]:
    served.needs(Capability.LOGITS, "the likeliest tokens")
    prompts: Sequence[str] = request.prompts
    if request.kind == "chat":  # the prompt of the answer
        render, config = served.tokenizing().render_chat, request.config(served.defaults)
        prompts = [await body.run(lambda: render(request.messages, config))]
    answered = await served.questions.run(prompts, LikeliestCall(request.likeliest))
    return answered.results


async def _echoed(served: Served, prompts: Sequence[str], body: RequestBody) -> list[list[Token]]:
    """Return the prompts' tokens, each with its log-probability after the preceding ones."""
    served.needs(Capability.TOKEN_PROMPTS, "log-probabilities of a prompt")
    model = served.tokenizing()
    ids = [await _ids(model, prompt, body) for prompt in prompts]
    pairs = [(own[:1], own[1:]) for own in ids if len(own) > 1]
    scores = iter((await served.questions.run(pairs, ScoreCall())).results)

    def tokens(own: Sequence[int]) -> list[Token]:
        logprobs: list[float | None] = [None]
        if len(own) > 1:
            logprobs += next(scores).raise_for_error().token_logprobs
        return [Token(*parts) for parts in zip(own, _texts(model, own), logprobs, strict=True)]

    return await body.run(lambda: [tokens(own) for own in ids])


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
