"""Models of a trained policy: in ONNX, in int8, what computes them, and whether they act as PyTorch does.

`python -m workers.export` and `clone` start it; a deployment takes `backends.build_backend`. onnx and onnxruntime (the
extra "onnx") are imported where they are needed alone.
"""
