"""What ``infer-cli lora train`` and ``lora eval`` do: files and flags in, figures out."""
