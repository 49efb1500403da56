"""Cases measured in turns, by a clock that a test holds."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import Capability, RequestError
from core.testing import FakeModel
from core.testing.model import capabilities
from core_cli.bench.cases import Case, Contestant, Sample, cases
from core_cli.bench.measuring import Measurement, measured
from core_cli.bench.prompts import Prompts
from core_cli.bench.tables import COLUMNS, figure, markdown, rows, svg


class Clock:
    """Every look at it comes so many seconds behind the one before."""

    def __init__(self, steps: Iterator[float]) -> None:
        self.now, self._steps = 0.0, steps

    def __call__(self) -> float:
        self.now += next(self._steps)
        return self.now


def ticking(seconds: float) -> Clock:
    return Clock(iter(lambda: seconds, None))


def contestant(name: str = "a", **options: Any) -> Contestant:
    model = FakeModel("word " * 100, labels=lambda prompt, labels: labels[0], **options)
    return Contestant(name, model, "fake", capabilities(lambda prompt, labels: labels[0]))


def calls(who: Contestant) -> list[Any]:
    assert isinstance(who.model, FakeModel)
    return who.model.calls


def only(case: Case, **options: Any) -> Measurement:
    [[found]] = measured([contestant()], [case], **options)
    return found


def test_the_cases_have_llama_benchs_names() -> None:
    names = [(case.name, case.unit) for case in cases(sizes=(1, 8))]
    assert names == [
        ("pp512", "tokens/s"),
        ("tg128", "tokens/s"),
        ("tg128+chain", "tokens/s"),
        ("ttft512", "s"),
        ("classify@1", "prompts/s"),
        ("classify@8", "prompts/s"),
        ("generate@1", "tokens/s"),
        ("generate@8", "tokens/s"),
    ]
    assert [case.name for case in cases(("tg", "pp"), 7, 9)] == ["pp7", "tg9"]


def test_rates_are_counted_work_over_time() -> None:
    clock = {"clock": ticking(0.5), "repetitions": 2}
    assert only(Case("pp", 40, 0), **clock).rates == [80.0, 80.0]
    assert only(Case("tg", 16, 20), **clock).rates == [40.0, 40.0]
    assert only(Case("sampling", 16, 20), **clock).rates == [40.0, 40.0]
    assert only(Case("ttft", 40, 0), **clock).rates == [0.5, 0.5]
    assert only(Case("classify", 64, 0, rows=8), **clock).rates == [16.0, 16.0]
    assert only(Case("generate", 16, 20, rows=3), **clock).rates == [120.0, 120.0]


def test_mean_and_spread() -> None:
    steps = iter([0.0, 1.0, 0.0, 2.0, 0.0, 4.0])  # a look before, and one behind each run
    found = only(Case("classify", 8, 0, 8), clock=Clock(steps), repetitions=3, warmup=0)
    assert found.rates == [8.0, 4.0, 2.0]
    assert found.mean == pytest.approx(14 / 3)
    assert found.spread == pytest.approx(statistics.stdev([8, 4, 2]))
    told = found.to_dict()
    assert (told["avg_ns"], told["samples_ns"]) == (2_333_333_333, [10**9, 2 * 10**9, 4 * 10**9])
    assert (told["test"], told["n_rows"], told["avg_ts"]) == ("classify@8", 8, found.mean)


def test_contestants_take_turns_and_the_first_rounds_do_not_count() -> None:
    one, other = contestant("a"), contestant("b")
    order: list[str] = []
    begun: list[str] = []
    groups = [
        *measured(
            [Noted(one, order), Noted(other, order)],
            cases(("pp", "ttft"), pp=8),
            repetitions=2,
            warmup=1,
            clock=ticking(1.0),
            begun=begun.append,
        )
    ]
    assert order == ["a", "b"] * 6
    assert begun == ["pp8", "ttft8"]
    assert [[len(each.samples) for each in group] for group in groups] == [[2, 2], [2, 2]]


class Noted(Contestant):
    """A contestant that writes down when it runs."""

    def __init__(self, of: Contestant, order: list[str]) -> None:
        super().__init__(of.name, of.model, of.backend, of.capabilities)
        self._order = order

    def sample(self, *args: Any) -> Sample:
        self._order.append(self.name)
        return super().sample(*args)


def test_each_run_has_prompts_of_its_own() -> None:
    who = contestant()
    [*measured([who], cases(("pp", "classify"), pp=30, sizes=(4,)), clock=ticking(1.0))]
    texts = [prompt for call in calls(who) for prompt in call.prompts]
    assert len({text[:12] for text in texts}) == len(texts)


def test_what_a_backend_lacks_is_said_and_the_others_go_on() -> None:
    plain = Contestant("p", FakeModel("word"), "plain", frozenset({Capability.GENERATE}))
    found = {
        each.case.name: each for [each] in measured([plain], cases(sizes=(1,)), clock=ticking(1))
    }
    assert found["classify@1"].note == found["generate@1"].note == "not offered"
    assert found["classify@1"].to_dict()["avg_ts"] is None
    assert found["pp512"].mean == 512  # by the first token of a text
    assert found["tg128"].note == "ended after 3 of 128 tokens"


def test_an_error_is_a_note() -> None:
    found = only(Case("pp", 5000, 0), clock=ticking(1.0))
    assert "too long: 5000 tokens" in found.note
    assert found.samples == ()

    broken = contestant(errors=lambda prompt: RequestError("odd"))
    [[failed]] = measured([broken], cases(("classify",), sizes=(1,)), clock=ticking(1.0))
    assert failed.note == "odd"


# ----------------------------------------------------------------------- prompts


@given(st.integers(1, 300), st.integers(0, 50))
def test_prompts_have_exactly_so_many_tokens(tokens: int, seed: int) -> None:
    model = FakeModel()
    text = Prompts(model, seed).text(tokens)
    word = text.partition(" ")[0]
    assert len(model.encode(text)) == max(tokens, len(model.encode(word)))
    assert text == Prompts(model, seed).text(tokens)


def test_without_a_tokenizer_words_are_counted() -> None:
    prompts = Prompts(object())
    assert not prompts.exact
    assert len(prompts.text(20).split()) == 20
    assert len(set(prompts.texts(32, 4))) == 32


# ----------------------------------------------------------------------- tables


def measurements() -> list[Measurement]:
    case, other = Case("pp", 512, 0), Case("classify", 64, 0, 8)
    return [
        Measurement("a", "mlx_cpu", case, (Sample(512, 1.0), Sample(512, 2.0)), peak_memory=5),
        Measurement("a|b", "llama_cpp", case, (Sample(512, 4.0),)),
        Measurement("a", "mlx_cpu", other, (Sample(8, 16.0),)),
        Measurement("a|b", "llama_cpp", other, note="not offered"),
    ]


def test_rows_have_the_ratio_to_the_first() -> None:
    found = [dict(zip(COLUMNS, row, strict=True)) for row in rows(measurements())]
    assert found[0]["rate"] == "384.0 ± 181.0"
    assert [row["ratio"] for row in found] == ["", "0.33", "", ""]
    assert (found[3]["rate"], found[3]["note"]) == ("-", "not offered")


def test_markdown_is_a_table() -> None:
    lines = markdown(measurements()).splitlines()
    assert lines[0] == "| model | backend | test | rate | unit | ratio | note |"
    assert lines[3] == "| a\\|b | llama_cpp | pp512 | 128.0 ± 0 | tokens/s | 0.33 |  |"


def test_the_drawing_has_a_bar_for_each_mean() -> None:
    from xml.etree import ElementTree

    drawn = svg(measurements(), "T < U")
    root = ElementTree.fromstring(drawn)
    bars = [each for each in root.iter() if each.tag.endswith("rect")]
    assert len(bars) == 3
    assert float(bars[1].attrib["width"]) == pytest.approx(380 / 3, abs=0.1)
    assert "T &lt; U" in drawn


@pytest.mark.parametrize(
    ("value", "told"), [(1234.56, "1234.6"), (12.345, "12.35"), (0.01234, "0.0123"), (0, "0")]
)
def test_figures(value: float, told: str) -> None:
    assert figure(value) == told
