"""PyTorch modules that are prepared by themselves, under NIMBLE_MODE=auto: docs/howto/unchanged-script.md says what the user sees.

`hook` is what python/nimble/startup imports when the program imports PyTorch; nothing else of this package is for use from
outside. Importing it changes nothing.
"""
