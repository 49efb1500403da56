"""Columns of texts to columns of labels, in pandas, polars and pyarrow.

::

    from core_frames import classify

    found = classify(df["text"], model, ["finance", "sports"], template="{text} This news is about")
    df = df.join(found)
"""

from core_frames.columns import classify

__all__ = ["classify"]
