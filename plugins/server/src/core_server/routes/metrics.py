"""``/metrics``: the server's counters in Prometheus's text format.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/. Each request for them reads
the counters where they are stored, so that counting costs other requests nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from core_server.models import Shelf
from core_server.server import Server

_COUNTED = {
    "decision_questions": "Questions answered.",
    "decision_calls": "Model calls for these questions; several clients may share one.",
    "decision_prompt_tokens": "Prompt tokens of questions.",
    "decision_cached_tokens": "Prompt tokens of questions that were read from the prefix cache.",
    "text_texts": "Texts generated.",
    "text_prompt_tokens": "Prompt tokens of texts.",
    "text_cached_tokens": "Prompt tokens of texts that were read from the prefix cache.",
    "text_generated_tokens": "Tokens generated.",
}
"""The counters of a model's queues."""


class _Metrics(Collector):
    def __init__(self, server: Server) -> None:
        self._server = server

    def collect(self) -> Iterable[Metric]:
        """Yield the current value of every metric."""
        server, places = self._server, self._server.places
        yield GaugeMetricFamily("core_requests", "Requests in progress.", places.accepted)
        yield CounterMetricFamily("core_requests_begun", "Requests accepted.", places.begun)
        yield CounterMetricFamily("core_requests_ended", "Requests ended.", places.ended)
        yield GaugeMetricFamily("core_memory_bytes", "Memory of requests.", places.memory.taken)
        yield GaugeMetricFamily("core_spooled_bytes", "Bodies on disk.", places.disk.taken)
        answered = CounterMetricFamily("core_answers", "Answers by status.", labels=["status"])
        for status, count in sorted(places.answers.items()):
            answered.add_metric([str(status)], count)
        yield answered
        yield from self._of_models(server.models.shelves)

    def _of_models(self, shelves: Mapping[str, Shelf]) -> Iterable[Metric]:
        loaded = GaugeMetricFamily("core_model_loaded", "1 if it is loaded.", labels=["model"])
        taken = GaugeMetricFamily("core_model_bytes", "Memory of the model.", labels=["model"])
        loads = CounterMetricFamily("core_model_loads", "Loads of the model.", labels=["model"])
        families = {
            name: CounterMetricFamily(f"core_{name}", text, labels=["model"])
            for name, text in _COUNTED.items()
        }
        for name, shelf in shelves.items():
            loaded.add_metric([name], shelf.served is not None)
            taken.add_metric([name], shelf.bytes_ if shelf.served is not None else 0)
            loads.add_metric([name], shelf.loads)
            counted = shelf.counted + (shelf.served.counted() if shelf.served else Counter())
            for counter, family in families.items():
                family.add_metric([name], counted[counter])
        yield from (loaded, taken, loads, *families.values())


async def metrics(server: Server, request: Request) -> Response:
    """Return the answer to ``GET /metrics``."""
    registry = CollectorRegistry()
    registry.register(_Metrics(server))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)
