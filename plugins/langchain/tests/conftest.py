"""Which of LangChain's standard tests ask for what core's chat model does not offer."""

from __future__ import annotations

import pytest

_TOOLS = "core has no tools"
_STRUCTURED = "core has no structured output"
_TEXT = "is not supported: only text is"
LEFT_OUT = {
    "test_init_from_env": "nothing is read from the environment",
    "test_serdes": "a loaded model is written into no file",
    "test_stream_time": "times are measured elsewhere, and pytest-recording is not installed",
    "test_tool_calling": _TOOLS,
    "test_tool_calling_async": _TOOLS,
    "test_tool_calling_with_no_arguments": _TOOLS,
    "test_bind_runnables_as_tools": _TOOLS,
    "test_tool_message_histories_string_content": _TOOLS,
    "test_tool_message_histories_list_content": _TOOLS,
    "test_tool_message_error_status": _TOOLS,
    "test_tool_choice": _TOOLS,
    "test_structured_few_shot_examples": _TOOLS,
    "test_unicode_tool_call_integration": _TOOLS,
    "test_agent_loop": _TOOLS,
    "test_structured_output": _STRUCTURED,
    "test_structured_output_async": _STRUCTURED,
    "test_structured_output_pydantic_2_v1": _STRUCTURED,
    "test_structured_output_optional_param": _STRUCTURED,
    "test_json_mode": _STRUCTURED,
    "test_pdf_inputs": _TEXT,
    "test_audio_inputs": _TEXT,
    "test_image_inputs": _TEXT,
    "test_image_tool_message": _TEXT,
    "test_pdf_tool_message": _TEXT,
    "test_anthropic_inputs": "parts of messages are those of LangChain and OpenAI",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave them out: what is skipped for another reason is then seen."""
    standard = [item for item in items if item.path.name == "test_langchain_standard.py"]
    left_out = [item for item in standard if getattr(item, "originalname", "") in LEFT_OUT]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
