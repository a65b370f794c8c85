"""Tensor program to tensor program: passes that keep the meaning and lower the cost. `pipeline` lists them in order."""
