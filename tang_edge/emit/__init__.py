"""Kernels to text: `legalize` makes a kernel expressible in a class of devices, `printer` spells it in a dialect."""
