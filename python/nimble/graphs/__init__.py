"""Preparing a graph: capturing a run, its memory, its inputs and outputs."""
