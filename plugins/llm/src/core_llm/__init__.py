"""A plugin of simonw/llm: every discovered model as ``core/NAME``, and ``llm classify``."""
