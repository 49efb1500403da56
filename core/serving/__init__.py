"""What backends that run in this process are built of: requests, streams, batches, threads.

A backend brings a `ServedModel` (`core.serving.served`) and an `Engine` (`core.serving.engine`);
the rest of ``generate``, ``chat``, ``submit``, ``batch_generate`` and ``batch_stream`` is
`GeneratingModel`. With a `Classifier` (`core.serving.classifying`), the rest of ``classify`` and
``classify_iter`` is `ClassifyingModel`. How much memory and how many cores there are for it:
``host_memory`` and ``host_cpus``.
"""
