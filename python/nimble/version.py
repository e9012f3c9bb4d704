"""The version of Nimble, written here alone: CMakeLists.txt and pyproject.toml read this file."""

VERSION = "0.1.0"
