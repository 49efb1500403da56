"""The unmodified clients of OpenAI and of System One against a server that listens."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import openai
import pytest
import typesafe_sdk as typesafe

from core.protocols import Capability
from core.testing import FakeModel
from core.types import ClassifyResult, Score
from core_server import Served, Settings

KEY = "a-key"
SHARES = {"yes": 0.6, "no": 0.2, "billing": 0.5, "sales": 0.1, "true": 0.2, "Calm": 0.1}
SHARES |= {"Angry": 0.3, "A": 0.2, "B": 0.7}


def probabilities(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    return {label: SHARES[label] / len(labels) for label in labels}


class Reads(FakeModel):
    """The fake, with logits (of "G", then "g") and scores of ids."""

    def classify(self, prompts: Sequence[str], config: Any = None, /, **options: Any) -> Any:
        if config is None or not config.return_logits:
            return super().classify(prompts, config, **options)
        logits = [-50.0] * 128
        logits[ord("G")], logits[ord("g")] = math.log(0.75), math.log(0.25)
        return [ClassifyResult(logits=logits) for _ in prompts]  # type: ignore[arg-type]

    def generate_tokens(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    stream_tokens = generate_tokens

    def score_tokens(self, prompts: Any, continuations: Any, config: Any = None, /) -> Any:
        return [Score(-1.0 * len(c), (-1.0,) * len(c)) for c in continuations]


@pytest.fixture
def address(
    listening: Callable[..., AbstractContextManager[tuple[str, int]]],
) -> Iterator[str]:
    model = Reads("Good day", labels=probabilities)
    served = Served("mine", model, capabilities=frozenset(Capability))
    settings = Settings(api_key=KEY, aliases={"gpt-4o-mini": "mine"})
    with listening(served, settings) as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key=KEY, base_url=f"{address}/v1", max_retries=0) as client:
        yield client


@pytest.fixture
def system_one(address: str) -> Iterator[typesafe.TypeSafeClient]:
    with typesafe.TypeSafeClient(api_key=KEY, base_url=address) as client:
        yield client


MESSAGES: Any = [{"role": "user", "content": "Hello"}]

# --------------------------------------------------------------------------- openai


def test_models(client: openai.OpenAI) -> None:
    model, alias = client.models.list().data
    assert (model.id, model.object) == ("mine", "model")
    assert alias.id == "gpt-4o-mini"
    reply = client.chat.completions.create(model="gpt-4o-mini", messages=MESSAGES)
    assert (reply.model, reply.choices[0].message.content) == ("mine", "Good day")
    with pytest.raises(openai.NotFoundError, match="Served: 'mine', 'gpt-4o-mini'"):
        client.chat.completions.create(model="gpt-5", messages=MESSAGES)


def test_a_chat(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="mine", messages=MESSAGES, stop=["d"], seed=1)
    [choice] = reply.choices
    assert (choice.message.content, choice.finish_reason) == ("Goo", "stop")
    assert reply.usage is not None
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens == 0
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 3


def test_several_chats_in_a_stream(client: openai.OpenAI) -> None:
    texts = ["", "", ""]
    reasons = []
    totals: list[int] = []
    with client.chat.completions.create(
        model="mine", messages=MESSAGES, n=3, stream=True, stream_options={"include_usage": True}
    ) as stream:
        for chunk in stream:
            totals += [chunk.usage.completion_tokens] if chunk.usage else []
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                reasons += [choice.finish_reason] if choice.finish_reason else []
    assert texts == ["Good day"] * 3
    assert reasons == ["stop"] * 3
    assert totals == [3 * len("Good day")]


def test_logprobs_of_a_chat_and_what_might_have_come_first(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model="mine", messages=MESSAGES, logprobs=True, top_logprobs=2, max_completion_tokens=1
    )
    assert reply.choices[0].logprobs is not None
    [token] = reply.choices[0].logprobs.content or []
    assert token.token == "G"
    tops = [(top.token, round(math.exp(top.logprob), 6)) for top in token.top_logprobs]
    assert tops == [("G", 0.75), ("g", 0.25)]


def test_completions(client: openai.OpenAI) -> None:
    reply = client.completions.create(
        model="mine", prompt="Hey", n=2, echo=True, logprobs=0, max_tokens=4
    )
    assert [choice.text for choice in reply.choices] == ["HeyGood"] * 2
    columns = reply.choices[1].logprobs
    assert columns is not None
    assert columns.tokens is not None
    assert "".join(columns.tokens) == "HeyGood"
    logprobs: Any = columns.token_logprobs
    assert logprobs[:3] == [None, -1.0, -1.0]

    alone = client.completions.create(model="mine", prompt="Hey", echo=True, max_tokens=0)
    assert (alone.choices[0].text, alone.choices[0].finish_reason) == ("Hey", "length")
    assert alone.usage is not None
    assert alone.usage.completion_tokens == 0

    first = client.completions.create(model="mine", prompt="Hey", logprobs=2, max_tokens=1)
    columns = first.choices[0].logprobs
    assert columns is not None
    assert columns.top_logprobs is not None
    assert {"G", "g"} <= {*columns.top_logprobs[0]}

    with client.completions.create(model="mine", prompt="Hey", echo=True, stream=True) as stream:
        assert "".join(chunk.choices[0].text for chunk in stream) == "HeyGood day"


def test_completions_of_several_prompts(client: openai.OpenAI) -> None:
    prompts = ["Hey", "You there", "Hm"]
    reply = client.completions.create(
        model="mine", prompt=prompts, n=2, echo=True, logprobs=0, max_tokens=4
    )
    assert [choice.index for choice in reply.choices] == [*range(6)]
    echoed = [f"{prompt}Good" for prompt in prompts for _ in range(2)]
    assert [choice.text for choice in reply.choices] == echoed
    for choice in reply.choices:
        assert choice.logprobs is not None
        assert "".join(choice.logprobs.tokens or []) == choice.text
    alone = [client.completions.create(model="mine", prompt=p, max_tokens=4) for p in prompts]
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == sum(one.usage.prompt_tokens for one in alone if one.usage)
    assert reply.usage.completion_tokens == 6 * 4

    texts = [""] * 3
    with client.completions.create(model="mine", prompt=prompts, stream=True) as stream:
        for chunk in stream:
            for part in chunk.choices:
                texts[part.index] += part.text
    assert texts == ["Good day"] * 3
    likely = client.completions.create(model="mine", prompt=prompts, logprobs=2, max_tokens=1)
    assert all(choice.logprobs and choice.logprobs.top_logprobs for choice in likely.choices)
    only = client.completions.create(model="mine", prompt=prompts, echo=True, max_tokens=0)
    assert [choice.text for choice in only.choices] == prompts
    assert only.usage is not None
    assert only.usage.prompt_tokens == reply.usage.prompt_tokens


# --------------------------------------------------------------------------- openai's responses


def test_a_response(client: openai.OpenAI) -> None:
    reply = client.responses.create(
        model="mine", input="Hello", instructions="Be brief.", temperature=0, store=False
    )
    assert (reply.output_text, reply.status, reply.error) == ("Good day", "completed", None)
    assert (reply.object, reply.model, reply.instructions) == ("response", "mine", "Be brief.")
    assert reply.usage is not None
    assert reply.usage.output_tokens == len("Good day")
    assert reply.usage.total_tokens == reply.usage.input_tokens + len("Good day")

    turns: Any = [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}]
    turns += [item.model_dump(exclude_none=True) for item in reply.output]
    turns += [{"role": "user", "content": "And now?"}]
    longer = client.responses.create(model="mine", input=turns)
    assert longer.output_text == "Good day"
    assert longer.usage is not None
    assert longer.usage.input_tokens > reply.usage.input_tokens


def test_a_response_that_is_cut(client: openai.OpenAI) -> None:
    reply = client.responses.create(model="mine", input="Hello", max_output_tokens=4)
    assert (reply.output_text, reply.status) == ("Good", "incomplete")
    assert reply.incomplete_details is not None
    assert reply.incomplete_details.reason == "max_output_tokens"
    with client.responses.create(
        model="mine", input="Hello", max_output_tokens=4, stream=True
    ) as stream:
        assert [*stream][-1].type == "response.incomplete"


def test_a_response_in_a_stream(client: openai.OpenAI) -> None:
    with client.responses.create(model="mine", input="Hello", stream=True) as events:
        listed = [*events]
    assert [event.sequence_number for event in listed] == [*range(len(listed))]
    deltas = [event.delta for event in listed if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "Good day"
    assert listed[-1].type == "response.completed"
    assert listed[-1].response.output_text == "Good day"

    with client.responses.stream(model="mine", input="Hello") as helped:  # it builds the answer
        for _ in helped:
            pass
        final = helped.get_final_response()
    assert final.output_text == "Good day"
    assert final.usage is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"previous_response_id": "resp_1"}, "Use /v1/chat/completions with the complete"),
        ({"tools": [{"type": "web_search"}]}, "tools: This is not supported"),
        ({"reasoning": {"effort": "low"}}, "reasoning: This is not supported"),
        ({"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]}, "Only mess"),
        ({"input": [{"role": "user", "content": 5}]}, r"input\[0\].content"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "json_object"}}}, "text: This is not supported"),
    ],
)
def test_responses_that_are_refused(
    client: openai.OpenAI, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        client.responses.create(**{"model": "mine", "input": "Hello"} | options)


def test_decisions_of_each_kind(client: openai.OpenAI) -> None:
    questions: Any = [
        {"type": "predicate", "name": "p", "instructions": "Is it so?"},
        {
            "type": "choice",
            "name": "c",
            "instructions": "Which?",
            "choices": [{"value": "sales"}, {"value": True}, {"value": "billing"}],
        },
        {
            "type": "score",
            "name": "s",
            "instructions": "How?",
            "levels": [{"label": "Calm"}, {"label": "Angry", "description": "shouts"}],
        },
    ]
    reply = client.decisions.create(model="mine", input="I was charged twice.", questions=questions)
    predicate, choice, score = reply.answers
    assert predicate.type == "predicate"
    assert predicate.probability == pytest.approx(0.75)
    assert choice.type == "choice"
    assert choice.choice == "billing"
    assert [option.value for option in choice.probabilities] == ["sales", True, "billing"]
    assert score.type == "score"
    assert score.score == pytest.approx(0.75)
    assert reply.usage.input_tokens_details.cached_tokens == 0

    letters = client.decisions.create(
        model="mine", input="Hm.", questions=questions[2:], extra_body={"x_reading": "letters"}
    )
    [score] = letters.answers
    assert score.type == "score"
    assert score.score == pytest.approx(0.7 / 0.9)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"model": "other"}, openai.NotFoundError),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, openai.BadRequestError),
        ({"response_format": {"type": "json_object"}}, openai.BadRequestError),
        ({"n": 1000}, openai.BadRequestError),
        ({"frequency_penalty": 0.5}, openai.BadRequestError),
        ({"temperature": -1}, openai.BadRequestError),
    ],
)
def test_errors_are_those_of_the_client(
    client: openai.OpenAI, options: dict[str, Any], error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as caught:
        client.chat.completions.create(**{"model": "mine", "messages": MESSAGES} | options)
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["message"]


def test_a_wrong_key(address: str) -> None:
    with (
        openai.OpenAI(api_key="wrong", base_url=f"{address}/v1") as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()


# --------------------------------------------------------------------------- System One


def test_its_models(system_one: typesafe.TypeSafeClient) -> None:
    [model] = system_one.models.list().models
    assert model.name == "mine"


def test_its_questions_of_each_kind(system_one: typesafe.TypeSafeClient) -> None:
    """As objects and as dictionaries; its default model, and contents of each kind."""
    reply = system_one.system_one(
        state={"mail": "I was charged twice.", "tags": ["a", "b"]},
        questions={
            "so": typesafe.Noul(instructions="Is it so?", criteria={"true": ["very", "much"]}),
            "team": typesafe.Choice(criteria={"sales": None, "billing": {"about": "money"}}),
            "mood": typesafe.Score(instructions="How?", criteria=["Calm", "Angry"]),
            "raw": {"type": "choice", "instructions": "?", "criteria": {"sales": "", "true": None}},
        },
    )
    assert reply.nouls["so"].noul == pytest.approx(0.75)
    assert reply.choices["team"].choice == "billing"
    assert reply.choices["raw"].choice == "true"
    assert reply.scores["mood"].score == pytest.approx(0.75)
    assert reply.scores["mood"].legend == {0: "Calm", 1: "Angry"}
    assert reply.usage.input_tokens


def test_its_errors(system_one: typesafe.TypeSafeClient, address: str) -> None:
    question = {"q": typesafe.Choice(criteria={"sales": None, "billing": None})}
    with pytest.raises(typesafe.TypeSafeNotFoundError):
        system_one.system_one(state="x", questions=question, model="other")
    with pytest.raises(typesafe.TypeSafeUnprocessableEntityError):
        system_one.system_one(state="x", questions={"q": typesafe.Choice(criteria={"sales": None})})
    with (
        typesafe.TypeSafeClient(api_key="wrong", base_url=address) as client,
        pytest.raises(typesafe.TypeSafeAuthenticationError),
    ):
        client.system_one(state="x", questions=question)


def test_what_it_compresses(address: str) -> None:
    """As it does on Python 3.14 without being asked to."""
    if sys.version_info < (3, 14):
        pytest.importorskip("backports.zstd")
    with typesafe.TypeSafeClient(api_key=KEY, base_url=address, compression="zstd") as client:
        question = {"q": typesafe.Choice(criteria={"sales": None, "billing": None})}
        reply = client.system_one(state="I was charged twice. " * 50, questions=question)
    assert reply.choices["q"].choice == "billing"
