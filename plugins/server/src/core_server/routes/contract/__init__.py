"""core's own wire (`core_wires.contract`): the whole contract, for the backend ``remote``."""
