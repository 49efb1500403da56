"""The backends ``openvino`` and ``encoder``: models on CPUs, as OpenVINO graphs of their configs."""
