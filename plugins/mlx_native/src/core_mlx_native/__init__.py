"""MLX backends for core: ``metal``, ``mlx_cuda`` and ``mlx_cpu``.

Users reach them through ``core.load_model(path, backend="mlx_cpu")``; importing this package
imports no MLX.
"""
