"""Measurements against ONNX Runtime; `python -m benchmarks.run --help`. Uses tang-edge's public API only."""
