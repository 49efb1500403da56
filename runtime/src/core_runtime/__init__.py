"""The base, in addition to `core`, of backends whose models run in the caller's process.

An author brings a loaded model with its tokenizer (`core_runtime.served`), the steps of generation
(a subclass of `core_runtime.engine.Engine`) and a `core_runtime.classifying.Classifier`, and joins
them in a subclass of `ClassifyingModel`; of `GeneratingModel` if it only generates, of
`core_runtime.reading.ReadingModel` if it also scores and returns hidden states. These classes
provide ``generate``, ``chat``, ``submit``, ``batch_generate``, ``batch_stream``, ``classify``,
``classify_iter``, the tokenizer's methods and the metrics, with checked options, cancel and
timeout, stop strings, labels, chat templates, close, fork and exit as the contract requires. All
computation runs on one thread, the model's `core_runtime.owner.OwnerThread`;
`core_runtime.batches` decides which rows run together, `core_runtime.machine` reports the free
cores and memory, `core_runtime.sequences` is an engine for flat batches of many sequences.
docs/in_process_engines.md explains them in order, and examples/in_process_backend is a complete
backend.
"""
