"""The backends ``openvino`` and ``encoder``: models on CPUs, as graphs of OpenVINO."""
