"""Schedules: limits of device classes, moves on loop nests, lowering to kernels, the choice among candidates, memory."""
