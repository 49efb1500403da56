"""core's API (`core_wires.contract`), with all operations of a model of ``infer-cli serve``."""
