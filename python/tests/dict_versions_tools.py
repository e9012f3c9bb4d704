"""nimble_update_words in Python, for tests that run without libnimble.so."""

import ctypes


def update(places, words, count):
    places, words = ((ctypes.c_uint64 * count).from_address(at) for at in (places, words))
    now = [ctypes.c_uint64.from_address(place).value for place in places]
    same = now == list(words)
    words[:] = now
    return 0 if same else 6
