"""core's own wire (`core.wires.contract`): the whole contract, for the backend ``remote``."""
