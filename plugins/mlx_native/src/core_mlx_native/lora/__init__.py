"""The implementation of ``infer-cli lora train`` and ``lora eval``."""
