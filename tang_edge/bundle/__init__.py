"""The bundle: the one bridge between the compiler and the runtimes (see ARCHITECTURE.md)."""
