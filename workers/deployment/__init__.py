"""Trained policies in service: ONNX models of them, backends that compute them, and the gateway that games ask.

`python -m workers.deploy` and `python -m workers.export` start it; others take `exporting.to_onnx` and
`backends.build_backend`. onnx and onnxruntime (the extra "onnx") are imported where they are needed alone.
"""
