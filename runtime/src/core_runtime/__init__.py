"""The base, in addition to `core`, of backends whose models run in the caller's process.

An author brings a loaded model with its tokenizer (`core_runtime.served`), the steps of generation
(a subclass of `core_runtime.engine.Engine`) and a `core_runtime.classifying.Classifier`, and joins
them in a subclass of `ClassifyingModel`; or of `GeneratingModel`, where nothing is classified. From
these come ``generate``, ``chat``, ``submit``, ``batch_generate``, ``batch_stream``, ``classify``,
``classify_iter``, the tokenizer's methods and the metrics, with options that are checked, cancel
and timeout, stop strings, labels, chat templates, close, fork and exit as the contract has them.
Computing belongs to one thread, the model's `core_runtime.owner.OwnerThread`; which rows run
together is told by `core_runtime.batches`, what the machine has by `core_runtime.machine`.
docs/in_process_engines.md tells it in order, and examples/in_process_backend is a complete backend.
"""
