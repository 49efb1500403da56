"""Options in pairs: the table covers, and the oracle agrees with samplers that it knows not of."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import combinations, product
from random import Random

import pytest

from core.options import GenerateConfig
from core.protocols import Backend, Capability
from core.types import Token
from core_conformance.checking.ask import Answer
from core_conformance.checking.check import all_checks
from core_conformance.checking.draws.frequencies import Warmth, surprise
from core_conformance.checking.draws.judging import stopped
from core_conformance.checking.draws.oracle import Luck, Step
from core_conformance.checking.draws.pairwise import pairwise
from core_conformance.checking.subject import Effort, Subject
from core_conformance.reference import Reference, classification, engine, write_model
from core_conformance.reference.sampling import filtered, penalised, sample, typical
from core_conformance.running.runner import run_check

OPTIONS = {
    "temperature": (0.4, 1.0, 20.0),
    "top_k": (0, 1, 3),
    "typical_p": (1.0, 0.5),
    "top_p": (1.0, 0.6),
    "min_p": (0.0, 0.3),
    "repeat_penalty": (1.0, 1.5, 0.5),
}
MINE = ("pairs.", "frequencies.")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A reference model."""
    return str(write_model(tmp_path_factory.mktemp("models") / "reference"))


def failures(backend: Backend, path: str, seed: int = 0) -> dict[str, str]:
    """The reasons of those of these checks that do not pass, by id."""
    subject = Subject(backend, path, effort=Effort(seed=seed))
    results = {
        id: run_check(check, subject) for id, check in all_checks().items() if id.startswith(MINE)
    }
    subject.close()
    return {id: result.reason for id, result in results.items() if result.status != "passed"}


@pytest.mark.parametrize("seed", range(4))
def test_every_pair_of_values_comes_together(seed: int) -> None:
    cases = pairwise(OPTIONS, seed)
    for left, right in combinations(OPTIONS, 2):
        together = {(case[left], case[right]) for case in cases}
        assert together == set(product(OPTIONS[left], OPTIONS[right]))
    assert len(cases) <= 15, "nine are needed, and all combinations would be 216"
    assert cases == pairwise(OPTIONS, seed)


def rows(count: int) -> list[tuple[list[float], list[int]]]:
    """Rows of logits, and tokens seen."""
    random = Random(3)
    return [
        ([random.gauss(0, 2) for _ in range(40)], random.sample(range(40), 6)) for _ in range(count)
    ]


def left(row: Sequence[float], seen: Collection[int], config: GenerateConfig) -> set[int]:
    """The tokens that the reference leaves."""
    scores = penalised(row, seen, config.repeat_penalty)
    if config.typical_p < 1.0:
        scores = typical(scores, config.typical_p)
    ranked = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    passed = filtered(scores, ranked, config)
    return {token for token in passed if scores[token] > -math.inf}


@pytest.mark.parametrize("case", pairwise(OPTIONS), ids=str)
def test_the_oracle_says_what_the_reference_leaves(case: dict[str, float]) -> None:
    config = GenerateConfig(**case)  # type: ignore[arg-type]
    for row, seen in rows(8):
        step = Step(row, seen, config, 0.0)
        possible = left(row, seen, config)
        assert {token for token in range(40) if not step.forbids(token)} == possible

        scores = penalised(row, seen, config.repeat_penalty)
        weights = {token: math.exp(scores[token] / config.temperature) for token in possible}
        shares = step.shares()
        assert set(shares) == possible
        for token, (low, high) in shares.items():
            exact = weights[token] / math.fsum(weights.values())
            assert low <= exact <= high
            assert high - low < 0.01
        if step.free:
            best = max(possible, key=scores.__getitem__)
            assert step.head(best) == pytest.approx(shares[best][0], rel=0.01)


@pytest.mark.parametrize("tolerance", [0.01, 0.1])
def test_noise_within_the_tolerance_is_never_forbidden(tolerance: float) -> None:
    random = Random(5)
    for case, (row, seen) in product(pairwise(OPTIONS), rows(12)):
        config = GenerateConfig(**case)
        step = Step(row, seen, config, tolerance)
        noisy = [value + random.uniform(-tolerance, tolerance) for value in row]
        possible = left(noisy, seen, config)
        assert not [step.forbids(token) for token in possible if step.forbids(token)]
        assert possible <= set(step.shares())
        assert {token for token, (low, _) in step.shares().items() if low} <= possible


def test_greedy_ignores_the_filters() -> None:
    row = [0.0, 3.0, 2.99, 1.0]
    config = GenerateConfig(top_k=1, typical_p=0.1)
    assert [bool(Step(row, (), config, 0.0).forbids(token)) for token in range(4)] == [
        True, False, True, True,
    ]  # fmt: skip
    assert not Step(row, (), config, 0.01).forbids(2)


def test_a_logprob_is_the_models_own() -> None:
    step = Step([1.0, 2.0], (1,), GenerateConfig(repeat_penalty=2.0, temperature=9.0), 0.0)
    assert step.logprob(1) == pytest.approx(-math.log(1 + math.exp(-1)))


@pytest.mark.parametrize(
    ("limit", "stop", "count", "reason"),
    [
        (2, "never", 2, "length"),
        (3, "never", 3, "length"),
        (4, "never", 3, "stop"),
        (3, "b", 1, "stop"),
    ],
)
def test_what_stops_and_a_length_make_of_an_answer_that_ends_itself(
    limit: int, stop: str, count: int, reason: str
) -> None:
    free = Answer(tuple(Token(id, text) for id, text in enumerate("abc")), "stop")
    answer = stopped(free, {"max_tokens": limit, "stop": (stop,)})
    assert (len(answer.tokens), answer.finish_reason) == (count, reason)


def test_luck_is_never_thought_rarer_than_it_is() -> None:
    """Each bound holds against the exact tail: of p-values, and of counts."""
    random = Random(11)
    worst = []
    for _ in range(2000):
        luck = Luck()
        for _ in range(5):
            luck.add(random.random())
        worst.append(luck.logarithm)
    assert sum(value < math.log(0.01) for value in worst) <= 20

    for count in range(21):
        tail = math.fsum(math.comb(20, n) * 0.3**n * 0.7 ** (20 - n) for n in range(count, 21))
        assert math.exp(-surprise(count, 20, 0.0, 0.3)) >= tail * (1 - 1e-9)
    assert surprise(6, 20, 0.25, 0.35) == 0.0


def test_many_draws_tell_a_wrong_temperature() -> None:
    heights = {0: 0.0, 1: -1.0, 2: -2.0}
    weights = [math.exp(height) for height in heights.values()]
    shares = {token: (weight / sum(weights),) * 2 for token, weight in enumerate(weights)}
    right, wrong = Warmth(), Warmth()
    random = Random(2)
    right.add(random.choices(range(3), weights, k=200), shares, heights)
    wrong.add(random.choices(range(3), [weight**3 for weight in weights], k=200), shares, heights)
    assert right.surprise < 5
    assert wrong.surprise > 25


def gumbel(
    logits: Sequence[float], seen: Collection[int], config: GenerateConfig, random: Random
) -> int:
    """Another sound sampler: noise for each token, and the largest sum."""
    scores = penalised(logits, seen, config.repeat_penalty)
    if config.temperature == 0:
        return max(range(len(scores)), key=lambda token: (scores[token], token))
    noise = [-math.log(-math.log(random.random() or 0.5)) for _ in scores]
    possible = left(logits, seen, config)
    return max(possible, key=lambda token: scores[token] / config.temperature + noise[token])


def inverse(
    logits: Sequence[float], seen: Collection[int], config: GenerateConfig, random: Random
) -> int:
    """Another: one number decides, along the ids."""
    if config.temperature == 0:
        return sample(logits, seen, config, random)
    scores = penalised(logits, seen, config.repeat_penalty)
    possible = sorted(left(logits, seen, config), reverse=True)
    best = max(scores[token] for token in possible)
    weights = [math.exp((scores[token] - best) / config.temperature) for token in possible]
    luck = random.random() * math.fsum(weights)
    for token, weight in zip(possible, weights, strict=True):
        luck -= weight
        if luck <= 0:
            return token
    return possible[-1]


@pytest.mark.parametrize("sampler", [gumbel, pytest.param(inverse, marks=pytest.mark.slow)])
def test_other_sound_samplers_pass(
    path: str, sampler: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "sample", sampler)
    monkeypatch.setattr(classification, "sample", sampler)
    assert failures(Reference(), path, seed=1) == {}


@pytest.mark.parametrize(
    "off",
    [
        pytest.param({Capability.TOKENIZING}, marks=pytest.mark.slow),
        pytest.param({Capability.LOGITS, Capability.SCORING}, marks=pytest.mark.slow),
        {Capability.GENERATE, Capability.SEED, Capability.PARALLEL},
        pytest.param(
            {Capability.LABELS, Capability.LOGPROBS, Capability.CLASSIFY_STREAMING},
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda off: ",".join(sorted(off)),  # as in every process: sets have no order
)
def test_a_backend_that_declares_less_passes(path: str, off: set[Capability]) -> None:
    assert failures(Reference(without=off), path) == {}
