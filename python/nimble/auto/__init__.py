"""Prepares PyTorch modules automatically, under NIMBLE_MODE=auto: docs/howto/unchanged-script.md says what the user sees.

python/nimble/startup imports `hook` when the program imports PyTorch; nothing else of this package is used from outside, and no other
package imports it. Importing it changes nothing."""
