"""Tensor program to tensor program: passes that keep the meaning and lower the cost, listed in `pipeline`."""
