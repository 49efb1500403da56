"""``/metrics``: what the server does, as Prometheus reads it.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/. Counters are read where they
are kept, at each request for them, so that counting costs a request nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.responses import Response

if TYPE_CHECKING:
    from core_server.app import Server

_OF_QUESTIONS = {
    "questions": "Questions that were answered.",
    "calls": "Calls of the model that answered them; fewer, where clients shared one.",
    "prompt_tokens": "Tokens of their prompts.",
    "cached_tokens": "Those of them that no pass computed: prefixes that were kept.",
}
_OF_TEXTS = {
    "texts": "Texts that were generated.",
    "prompt_tokens": "Tokens of their prompts.",
    "cached_tokens": "Those of them that no pass computed.",
    "generated_tokens": "Tokens that were generated.",
}


class _Measures(Collector):
    def __init__(self, server: Server) -> None:
        self._server = server

    def collect(self) -> Iterable[Metric]:
        """All of them, as they stand."""
        server = self._server
        yield GaugeMetricFamily("core_requests", "Accepted, not answered yet.", server.accepted)
        answered = CounterMetricFamily("core_answers", "Answers by status.", labels=["status"])
        for status, count in sorted(server.answers.items()):
            answered.add_metric([str(status)], count)
        yield answered
        for name, told in _OF_QUESTIONS.items():
            yield self._by_model(f"core_decision_{name}", told, "questions", name)
        for name, told in _OF_TEXTS.items():
            yield self._by_model(f"core_text_{name}", told, "texts", name)

    def _by_model(self, name: str, told: str, queue: str, counter: str) -> Metric:
        family = CounterMetricFamily(name, told, labels=["model"])
        for each in self._server.served.values():
            family.add_metric([each.name], getattr(getattr(each, queue), counter))
        return family


def measures(server: Server) -> Response:
    """The answer to ``GET /metrics``."""
    registry = CollectorRegistry()
    registry.register(_Measures(server))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)
