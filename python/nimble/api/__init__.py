"""The classes that users call: nimble.Nimble and nimble.accelerate."""
