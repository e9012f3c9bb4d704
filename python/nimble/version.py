"""The package's version, which is the library's: python/tests/package/test_shim.py holds the two against each other."""

VERSION = "0.1.0"
