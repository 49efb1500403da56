"""The conformance suite for backends of core.

Three ways in: ``infer-cli conformance NAME -m MODEL``, ``pytest --pyargs core_conformance
--core-backend NAME --core-model MODEL``, or a ``[tool.core-conformance]`` table.
"""

MARKER = "core_conformance"  # of pytest, on every conformance test
