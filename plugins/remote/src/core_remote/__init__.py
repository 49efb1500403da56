"""The backend ``remote``: a model behind a server, through the contract of every other model.

Users reach it through ``core.load_model("http://host:port#model")``. This package imports nothing.
"""
