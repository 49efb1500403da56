"""The backend ``remote``: a model on a server, with the contract of every other model.

Users reach it through ``core.load_model("http://host:port#model")``. This package imports nothing.
"""
