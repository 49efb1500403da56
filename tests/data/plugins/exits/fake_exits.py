"""A plugin that believes to be a program."""

raise SystemExit("usage: fake_exits [options]")
