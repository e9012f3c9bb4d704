"""nimble.step: captures whole training steps as graphs and replays them."""
