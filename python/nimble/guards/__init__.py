"""Decides whether a graph still serves a call, and restores state after runs that only Nimble needs."""
