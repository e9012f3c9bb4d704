"""Shared by the suite's Python programs: they make steps on command, and print the results.

    import stepped
    stepped.serve(make)

`make(seed)` sets a program up and returns (step, outputs, synchronize): `step()` does one step's work, `synchronize()`
waits for the device, `outputs()` returns the steps' results, as a list of numpy arrays. Commands come on standard
input:

    run N     N steps, each timed with a synchronisation at its end
    end       the program ends as any program does

The answers are lines of JSON on standard output: {"ready": ..., "facts": {...}} at first, then for each run "steps",
"median_us", and "digest", which is SHA-256 over all outputs up to then. Libraries' output goes to standard error. """

import argparse
import hashlib
import json
import os
import statistics
import sys
import time


def digest_of(arrays, before):
    """Chained: the digest of a run covers the runs before it."""
    import numpy

    whole = hashlib.sha256(before.encode())
    for array in arrays:
        array = numpy.ascontiguousarray(array)
        whole.update(f"{array.dtype} {array.shape}".encode())
        whole.update(array.tobytes())
    return whole.hexdigest()


def serve(make, facts=dict, variants=None):
    """`variants`: the allowed values of the program's first argument, which is passed to `make` and `facts`."""
    parser = argparse.ArgumentParser()
    if variants:
        parser.add_argument("variant", choices=sorted(variants))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    variant = [options.variant] if variants else []

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**fields):
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    step, outputs, synchronize = make(*variant, options.seed)
    answer(ready=True, facts=facts(*variant))
    digest = ""
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["end"]:
            break
        times = []
        for _ in range(int(words[1])):
            begin = time.perf_counter()
            step()
            synchronize()
            times.append(time.perf_counter() - begin)
        digest = digest_of(outputs(), digest)
        answer(steps=len(times), median_us=statistics.median(times) * 1e6, digest=digest)
