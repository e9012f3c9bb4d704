"""Looks at Python objects: their values, what they hold, and what they refer to."""
