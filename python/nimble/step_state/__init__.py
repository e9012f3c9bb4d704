"""Finds the state that a step uses besides its arguments, compares it at each call, and restores it."""
