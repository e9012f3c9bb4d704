"""Python objects: what they hold, and what they refer to."""
