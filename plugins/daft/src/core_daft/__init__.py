"""Models of `core` for Daft's ``classify_text``, on this machine or on a Ray cluster.

::

    provider = core_daft.CoreProvider(path, template="{text} This news is about")
    label = classify_text(daft.col("text"), ["finance", "sports"], provider=provider)
    df = df.with_column("label", label)
"""

from core_daft.provider import CoreProvider

__all__ = ["CoreProvider"]
