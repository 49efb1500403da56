"""What an answer of OpenAI's tells beside its text: an echoed prompt's tokens, likeliest ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.errors import EmptyPromptError
from core.extensions import Tokenizing
from core.protocols import Capability
from core.types import Token
from core.wires.completions import NOTHING, Beside
from core.wires.generation import GenerationRequest
from core_server.bounds import bytes_of_text
from core_server.calls import Likeliest, Scored
from core_server.served import Served
from core_server.work import Work


async def what_is_beside(
    served: Served, request: GenerationRequest, work: Work
) -> tuple[Beside, int]:
    """It, and the prompt's tokens where nothing else counts them.

    Raises `core.UnsupportedOperationError` for a backend that does not tell, and
    `core.EmptyPromptError` for a prompt of which there is nothing to echo.
    """
    if request.likeliest:
        return Beside(likeliest=await _likeliest(served, request, work)), 0
    if not request.echo:
        return NOTHING, 0
    if not request.prompt:
        raise EmptyPromptError
    if request.options.get("return_logprobs"):
        prompt = await _echoed(served, request.prompt, work)
        return Beside(prompt=prompt), len(prompt)
    if request.generates or not isinstance(served.model, Tokenizing):
        return NOTHING, 0
    return NOTHING, len(await _ids(served.model, request.prompt, work))


async def _ids(model: Tokenizing, prompt: str, work: Work) -> list[int]:
    with work.part() as share:
        share.take(bytes_of_text(prompt))
        return await work.run(lambda: model.encode(prompt))


async def _likeliest(served: Served, request: GenerationRequest, work: Work) -> Sequence[Token]:
    served.needs(Capability.LOGITS, "the likeliest tokens")
    prompt = request.prompt
    if request.kind == "chat":  # as the answer's own prompt is, which they stand beside
        render, config = served.tokenizing().render_chat, request.config(served.defaults)
        prompt = await work.run(lambda: render(request.messages, config))
    asked = await served.questions.run([prompt], Likeliest(request.likeliest))
    return asked.results[0]


async def _echoed(served: Served, prompt: str, work: Work) -> list[Token]:
    """The prompt's tokens, each with its log-probability behind those before it."""
    served.needs(Capability.TOKEN_PROMPTS, "log-probabilities of a prompt")
    model = served.tokenizing()
    ids = await _ids(model, prompt, work)
    logprobs: list[float | None] = [None]
    if len(ids) > 1:
        asked = await served.questions.run([(ids[:1], ids[1:])], Scored())
        logprobs += asked.results[0].raise_for_error().token_logprobs
    texts = await work.run(lambda: [*_texts(model, ids)])
    return [Token(*each) for each in zip(ids, texts, logprobs, strict=True)]


def _texts(model: Tokenizing, ids: Sequence[int]) -> Iterator[str]:
    """The text of each token, as it reads behind the one before: some begin with a space there."""
    before = ""
    for place, id in enumerate(ids):
        alone = model.decode([id])
        pair = model.decode(ids[max(0, place - 1) : place + 1])
        yield pair.removeprefix(before) if pair.startswith(before) else alone
        before = alone
