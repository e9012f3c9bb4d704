"""Prepares graphs: captures a run, and owns its memory, inputs and outputs."""
