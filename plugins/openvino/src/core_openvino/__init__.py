"""The backend ``openvino``: decoders on CPUs, as OpenVINO graphs built from the model's config."""
