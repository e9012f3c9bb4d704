"""nimble.step: whole training steps as graphs."""
