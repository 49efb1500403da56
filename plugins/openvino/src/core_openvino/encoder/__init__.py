"""The backend ``encoder``: BERT-shaped encoders on CPUs, which score the sentences of labels."""
