"""Perceptrons in C: compiled on this machine at the first use, kept in the cache folder, called by ctypes."""
