"""WGSL: the dialect of the printer, and the WebGPU device of the runtime (host.py)."""
