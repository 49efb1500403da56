"""LangChain's own standard tests, on the chat model; conftest.py names those that are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from core.api import close_shared_models
from core.registry import REGISTRY
from core.testing import FakeBackend, FakeModel, write_model
from core_langchain import ChatCore

pytestmark = pytest.mark.anyio
# What LangChain's models of a service have beyond ours: a key, and tries again. A field that is
# not known is refused here, so that these cannot be handed over.
_OF_SERVICES = {"api_key", "max_retries"}


MODELS: dict[str, str] = {}  # the paths of those that the classes below load


@pytest.fixture(autouse=True, scope="module")
def _fakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("models")
    MODELS.update({name: str(write_model(folder / name)) for name in ("one", "two")})
    with pytest.MonkeyPatch.context() as patch:
        registered = {**REGISTRY._registered, "fake": FakeBackend("Hello there.")}
        patch.setattr(REGISTRY, "_registered", registered)
        yield
    close_shared_models()


@pytest.fixture(scope="module")
def smollm2(smollm2_dir: Path) -> None:
    MODELS["smollm2"] = str(smollm2_dir)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def snapshot() -> None:
    """Of syrupy, for models that LangChain may write into files: ours are none of those."""


@pytest.fixture
def benchmark() -> Callable[[Callable[[], None]], None]:
    """Of pytest-benchmark: the call is made, and not timed."""
    return lambda run: run()


class TestUnit(ChatModelUnitTests):
    """Nothing is asked of a model here."""

    @property
    def chat_model_class(self) -> type[ChatCore]:
        return ChatCore

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "fake", "loaded": FakeModel("Hello.")}

    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        given = super().standard_chat_model_params
        return {name: value for name, value in given.items() if name not in _OF_SERVICES}


class _Integration(ChatModelIntegrationTests):
    """Tools, structured output, images, sound and files are not offered, and so not asked."""

    @property
    def chat_model_class(self) -> type[ChatCore]:
        return ChatCore

    @property
    def supports_model_override(self) -> bool:
        return True

    @property
    def supported_usage_metadata_details(self) -> Any:
        return {"invoke": ["cache_read_input"], "stream": ["cache_read_input"]}

    def invoke_with_cache_read_input(self, *, stream: bool = False) -> Any:
        model = ChatCore(**self.chat_model_params)
        asked = "Hello, this is asked twice, so that its beginning is known. " * 4
        for _ in range(2):
            if not stream:
                answer: Any = model.invoke(asked)
                continue
            answer = None
            for chunk in model.stream(asked):
                answer = chunk if answer is None else answer + chunk
        return answer


class TestIntegration(_Integration):
    """On the fake, whose answers are known, loaded by a path."""

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": MODELS["one"], "backend": "fake"}

    @property
    def model_override_value(self) -> str:
        return MODELS["two"]


@pytest.mark.slow
@pytest.mark.usefixtures("smollm2")
class TestIntegrationOnSmolLM2(_Integration):
    """On a real model, loaded by its path."""

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": MODELS["smollm2"], "max_tokens": 24}

    @property
    def model_override_value(self) -> str:
        return "smollm2-135m-instruct"
