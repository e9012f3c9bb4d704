"""What decides whether a graph still serves a call, and puts state back."""
