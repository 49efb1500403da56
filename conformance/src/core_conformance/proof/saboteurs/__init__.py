"""The saboteurs: what must fail the suite, one module per part of the contract."""
