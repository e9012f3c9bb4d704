"""Decides whether a graph still serves a call, and restores state after runs of ours."""
