"""A plugin whose heavy library is broken."""

raise RuntimeError("libfake.so was built for another machine")
