"""core's own wire (`core.wires.contract`), by which a model of ``infer-cli serve`` is all there."""
