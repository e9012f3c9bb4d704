"""What users call: nimble.Nimble and nimble.accelerate."""
