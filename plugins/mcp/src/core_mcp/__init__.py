"""``infer-cli mcp``: models of this machine as tools of the Model Context Protocol."""
