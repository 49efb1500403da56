"""Both decision wires from their own examples: requests in, answers out, refusals by name."""

from __future__ import annotations

from typing import Any

import pytest

from core_wires import decisions, systemone
from core_wires.errors import OPENAI, SYSTEM_ONE, WireError, unknown_model
from core_wires.questions import (
    Choice,
    ChoiceAnswer,
    Evidence,
    Level,
    Option,
    Predicate,
    PredicateAnswer,
    Score,
    ScoreAnswer,
)
from core_wires.usage import Usage

SYSTEM_ONE_BODY: dict[str, Any] = {
    "model": "jev-latest",
    "state": {"subject": "Twice", "items": [1, {"a": None}]},
    "seed": 7,  # unknown fields at the top are passed over
    "questions": {
        "질문 1": {"type": "noul", "criteria": {"true": "They want money back", "false": None}},
        "team": {
            "type": "choice",
            "instructions": ["Route it.", "One team."],
            "criteria": {"billing": {"owns": ["refunds"]}, "sales": None},
        },
        "anger": {"type": "score", "instructions": "How angry?", "criteria": ["Calm", {"x": 1}]},
    },
}
DECISIONS_BODY: dict[str, Any] = {
    "model": "gpt-6-luna",
    "input": "The box was crushed.",
    "safety_identifier": None,
    "prompt_cache_key": "k",
    "questions": [
        {"type": "predicate", "name": "damaged", "instructions": "Is it damaged?"},
        {
            "type": "choice",
            "name": "dept",
            "instructions": [
                {"type": "input_text", "text": "Where to?"},
                {"type": "input_json", "data": {"rule": "one"}},
            ],
            "choices": [{"value": "true", "description": "so"}, {"value": True}],
        },
        {"type": "score", "instructions": "How bad?", "levels": [{"label": "a"}, {"label": "b"}]},
    ],
}
ANSWERS = (
    PredicateAnswer(0.97, Evidence(0.5, 0.94, (-0.1, -3.0))),
    ChoiceAnswer("billing", (0.9, 0.1), 0.8, Evidence(None, None, (-1.0, float("-inf")), "L1")),
    ScoreAnswer(0.8, (0.2, 0.8), 0.6),
)


def test_systemone_in() -> None:
    request = systemone.read(SYSTEM_ONE_BODY)
    assert request.wire == "systemone"
    assert request.state == 'subject: Twice\nitems: [1, {"a": null}]'
    assert request.questions == (
        Predicate("", "They want money back", "", "질문 1"),
        Choice(
            "- Route it.\n- One team.",
            (Option("billing", 'owns: ["refunds"]'), Option("sales")),
            "team",
        ),
        Score("How angry?", (Level("Calm"), Level("x: 1")), "anger"),
    )
    assert systemone.serves(request.model, {"mine"})
    assert not systemone.serves("another", {"mine"})


def test_systemone_out() -> None:
    request = systemone.read(SYSTEM_ONE_BODY)
    body = systemone.response(request, ANSWERS, model="mine", usage=Usage(142, 100, 3))
    assert body == {
        "model": "mine",
        "answers": {
            "질문 1": {
                "type": "noul",
                "noul": 0.97,
                "x_level": "raw",
                "x_reading": "labels",
                "x_label_mass": 0.5,
                "x_margin": 0.94,
                "x_logprobs": {"true": -0.1, "false": -3.0},
            },
            "team": {
                "type": "choice",
                "choice": "billing",
                "probabilities": {"billing": 0.9, "sales": 0.1},
                "confidence": 0.8,
                "x_level": "L1",
                "x_reading": "labels",
                "x_logprobs": {"billing": -1.0, "sales": None},
            },
            "anger": {
                "type": "score",
                "score": 0.8,
                "legend": {"0": "Calm", "1": "x: 1"},
                "probabilities": {"0": 0.2, "1": 0.8},
                "confidence": 0.6,
                "x_level": "raw",
                "x_reading": "labels",
            },
        },
        "usage": {"input_tokens": 142, "output_tokens": 3, "x_cached_tokens": 100},
    }


def test_decisions_in() -> None:
    request = decisions.read(DECISIONS_BODY)
    assert (request.wire, request.state) == ("decisions", "The box was crushed.")
    assert request.questions == (
        Predicate("Is it damaged?", name="damaged"),
        Choice("Where to?\nrule: one", (Option("true", "so"), Option(True)), "dept"),
        Score("How bad?", (Level("a"), Level("b"))),
    )


def test_decisions_out() -> None:
    request = decisions.read(DECISIONS_BODY)
    choice = ChoiceAnswer(True, (0.1, 0.9), 0.8)
    body = decisions.response(request, (None, choice, ANSWERS[2]), model="m", usage=Usage(1, 0, 3))
    assert body == {
        "model": "m",
        "answers": [
            {"type": "refusal", "name": "damaged"},
            {
                "type": "choice",
                "name": "dept",
                "choice": True,
                "probabilities": [
                    {"value": "true", "probability": 0.1},
                    {"value": True, "probability": 0.9},
                ],
                "confidence": 0.8,
            },
            {
                "type": "score",
                "name": None,
                "score": 0.8,
                "probabilities": [
                    {"value": 0, "label": "a", "probability": 0.2},
                    {"value": 1, "label": "b", "probability": 0.8},
                ],
                "confidence": 0.6,
            },
        ],
        "usage": {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 4,
        },
    }


def test_an_input_of_items_says_who_said_what() -> None:
    items = [
        {"type": "message", "role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Hello"}], "phase": None},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "1", "output": "found"},
    ]
    state = decisions.read({**DECISIONS_BODY, "input": items}).state
    assert state.splitlines() == [
        *("developer: Be brief.", "user: Hi", "assistant: Hello"),
        *('call of look: {"a": 1}', "output: found"),
    ]
    assert decisions.read({**DECISIONS_BODY, "input": items[1:2]}).state == "Hi"


def question(**changes: object) -> dict[str, object]:
    return {"questions": {"q": {"type": "choice", "criteria": {"a": None, "b": None}, **changes}}}


@pytest.mark.parametrize(
    ("change", "place", "code"),
    [
        ({"state": None}, ["state"], "missing"),
        ({"state": 5}, ["state"], "string_type"),
        ({"model": 1}, ["model"], "string_type"),
        ({"questions": {}}, ["questions"], "too_short"),
        ({"questions": []}, ["questions"], "dict_type"),
        ({"assets": {"a": {}}}, ["assets"], "unsupported"),
        ({"images": ["aGk="]}, ["images"], "unsupported"),
        (question(type="box"), ["questions", "q", "type"], "union_tag_invalid"),
        (question(type="noul", criteria=None), ["questions", "q"], "missing"),
        (question(type=None), ["questions", "q", "type"], "missing"),
        (question(kriteria=1), ["questions", "q", "kriteria"], "unknown_field"),
        (question(criteria={"a": None}), ["questions", "q", "criteria"], "too_short"),
        (question(criteria={"a": 1, "b": ""}), ["questions", "q", "criteria", "a"], "string_type"),
        (
            question(criteria=dict.fromkeys(map(str, range(256)))),
            ["questions", "q", "criteria"],
            "too_long",
        ),
        (
            question(type="score", criteria={"0": "a", "1": "b"}),
            ["questions", "q", "criteria"],
            "list_type",
        ),
        (question(type="score", criteria=["a"] * 11), ["questions", "q", "criteria"], "too_long"),
        (
            question(type="score", criteria=["a", None]),
            ["questions", "q", "criteria", 1],
            "string_type",
        ),
    ],
)
def test_systemone_refuses_with_422_and_the_place(
    change: dict[str, object], place: list[object], code: str
) -> None:
    with pytest.raises(WireError) as caught:
        systemone.read({**SYSTEM_ONE_BODY, **change})
    details: Any = caught.value.body["detail"]
    [detail] = details
    assert caught.value.status == 422
    assert detail["loc"] == ["body", *place]
    assert detail["type"] == code
    assert detail["msg"]


def test_the_limits_themselves_are_within() -> None:
    options = {f"Queue {number:03d}": None for number in range(255)}
    questions: dict[str, object] = {
        str(number): {"type": "score", "criteria": [str(n) for n in range(10)]}
        for number in range(399)
    }
    questions["c"] = {"type": "choice", "criteria": options}
    request = systemone.read({**SYSTEM_ONE_BODY, "questions": questions})
    assert len(request.questions) == 400
    questions["more"] = questions["0"]
    with pytest.raises(WireError, match="401 questions: there may be 1 to 400"):
        systemone.read({**SYSTEM_ONE_BODY, "questions": questions})
    with pytest.raises(WireError, match="401 questions: there may be 1 to 400"):
        decisions.read({**DECISIONS_BODY, "questions": DECISIONS_BODY["questions"][:1] * 401})


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0]",
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "9", "output": ""}]},
            "input[0].call_id",
        ),
        ({"images": ["x"]}, "images"),
        ({"temperature": 0.5}, "temperature"),
        ({"questions": []}, "questions"),
        ({"questions": [{"type": "yes_no", "instructions": "?"}]}, "questions[0].type"),
        ({"questions": [{"type": "predicate"}]}, "questions[0].instructions"),
        (
            {
                "questions": [
                    {
                        "type": "choice",
                        "instructions": "?",
                        "choices": [{"value": "a"}, {"value": "a"}],
                    }
                ]
            },
            "questions[0].choices[1].value",
        ),
        (
            {
                "questions": [
                    {
                        "type": "choice",
                        "instructions": "?",
                        "choices": [{"value": "a"}, {"value": 1}],
                    }
                ]
            },
            "questions[0].choices[1].value",
        ),
    ],
)
def test_decisions_refuses_with_400_and_the_field(change: dict[str, object], param: str) -> None:
    with pytest.raises(WireError) as caught:
        decisions.read({**DECISIONS_BODY, **change})
    error: Any = caught.value.body["error"]
    assert caught.value.status == 400
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert error["message"].startswith(f"{param}: ")


def test_a_large_json_part_is_refused() -> None:
    def body(data: object) -> dict[str, object]:
        part = {"type": "input_json", "data": data}
        return {**DECISIONS_BODY, "input": [{"role": "user", "content": [part]}]}

    deep: dict[str, object] = {}
    for _ in range(31):
        deep = {"a": deep}
    decisions.read(body(deep))
    for data in ({"a": deep}, {"a": [1] * 10_000}, {"a": "x" * 2**18}, [1], "text"):
        with pytest.raises(WireError, match="data"):
            decisions.read(body(data))


def test_an_unknown_model_is_404_in_each_dialect() -> None:
    error: Any = unknown_model(SYSTEM_ONE, "x", ["mine"]).body["detail"]
    assert error["error_type"] == "not_found"
    theirs: Any = unknown_model(OPENAI, "x", ["mine"]).body["error"]
    assert theirs["code"] == "model_not_found"
    assert theirs["message"] == "Unknown model 'x'. Served: 'mine'."
    assert unknown_model(OPENAI, "x", ["mine"]).status == 404


@pytest.mark.parametrize("wire", ["systemone", "decisions"])
def test_what_is_read_is_chosen_by_the_request(wire: str) -> None:
    module = systemone if wire == "systemone" else decisions
    body: dict[str, Any] = SYSTEM_ONE_BODY if wire == "systemone" else DECISIONS_BODY
    assert module.read(body).reading == "labels"
    assert module.read(body | {"x_reading": "labels"}).reading == "labels"
    assert module.read(body | {"x_reading": "letters"}).reading == "letters"
    with pytest.raises(WireError, match="x_reading: This must be labels or letters"):
        module.read(body | {"x_reading": "numbers"})


def test_letters_have_an_end() -> None:
    options = dict.fromkeys(map(str, range(27)))
    question = {"type": "choice", "criteria": options}
    body: dict[str, Any] = {"model": "m", "state": "x", "questions": {"q": question}}
    assert len(systemone.read(body).questions) == 1
    with pytest.raises(WireError, match="at most 26 options"):
        systemone.read(body | {"x_reading": "letters"})
