"""The checks, one module per part of the contract."""
