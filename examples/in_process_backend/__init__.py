"""A complete backend whose engine runs in the caller's process, on core_runtime alone.

The model is a toy in plain Python. Around it stands what an engine of your own needs, in files that
are named as in the plugins: `language` is the network, `tokenizer` and `sampling` go from text to
tokens and back, `engine` generates, `classify` reads prompts, `loader` leaves what `model` and
`backend` show to core. docs/in_process_engines.md explains it step by step.
"""

from .backend import Toy as Toy
