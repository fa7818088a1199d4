"""Models of a trained policy in ONNX and int8: export, backends, and the check that they act as PyTorch does.

`python -m workers.export` and `clone` start it; a deployment uses `backends.build_backend`. onnx and onnxruntime (the
extra "onnx") are imported only where they are needed.
"""
