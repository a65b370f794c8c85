"""C: the dialect of the printer, and the device that compiles and calls the generated C (host.py)."""
