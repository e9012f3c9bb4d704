#!/usr/bin/env python3
"""Very many random kernels: machine code's proofs against PTX's, and against what the kernels do when they are run.

Prints each contradiction and the seed of the kernels, then the sums. Exit status 1 where there is one.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import sys
import tempfile

import corpus

CHUNK = 25  # kernels per file


def one_chunk(options, seed):
    # Kernels of each level in turn.
    levels = (75, 80) if options.choices else sorted(corpus.ARCHS)
    level = 75 if options.library or options.indices else levels[(seed - options.seed) // CHUNK % len(levels)]
    with tempfile.TemporaryDirectory() as folder:
        if options.library:
            source = os.path.join(corpus.HERE, "library_kernels.cu")
        else:
            source = os.path.join(folder, "kernels.cu")
            if options.indices:
                corpus.write_index_kernels(folder, seed, CHUNK)
            elif options.choices:
                corpus.write_choice_kernels(folder, seed, CHUNK)
            else:
                corpus.write_kernels(folder, seed, CHUNK, level)
        archs = [arch for arch in corpus.ARCHS[level] if not options.archs or arch in options.archs]
        ptx, cubins = corpus.compile_kernels(options.nvcc, folder, archs or corpus.ARCHS[level], source, level)
        oracle = os.path.join(options.build, "bin", "sass_oracle")
        return corpus.ask(oracle, folder, ptx, cubins, options.runs, options.mutations, seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, metavar="DIR", help="a build tree")
    parser.add_argument("--nvcc", default="/usr/local/cuda/bin/nvcc", help="the compiler (default %(default)s)")
    parser.add_argument("--programs", type=int, default=1000, metavar="N", help="how many kernels (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the first kernel (default %(default)s)")
    parser.add_argument("--runs", type=int, default=340, metavar="N", help="of each kernel on each architecture")
    parser.add_argument("--mutations", type=int, default=50, metavar="N", help="changed programs made of each of them")
    parser.add_argument("--archs", type=lambda text: tuple(map(int, text.split(","))), default=(),
                        metavar="LIST", help="architectures (default: 75, 80, 90, 90a as 91, 120, each with what it has)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="so many at once")
    parser.add_argument("--library", action="store_true", help="the kernels of CUB and Thrust instead")
    parser.add_argument("--indices", action="store_true", help="kernels whose indices are to be bounded instead")
    parser.add_argument("--choices", action="store_true", help="kernels whose parameters choose what they do instead")
    parser.add_argument("--break", dest="what_breaks", choices=("rule",),
                        help="break rules of the data-flow, one at a time, to see each found (sabotage.py)")
    parser.add_argument("--differences", action="store_true", help="print where machine code and PTX differ")
    parser.add_argument("--json", metavar="FILE", help="keep the sums there")
    options = parser.parse_args()
    if options.what_breaks:
        words = ["--build", options.build, "--nvcc", options.nvcc, "--seed", str(options.seed)]
        os.execv(sys.executable, [sys.executable, os.path.join(corpus.HERE, "sabotage.py"), *words])
    sums = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        seeds = range(options.seed, options.seed + (1 if options.library else options.programs), CHUNK)
        for seed, answer in zip(seeds, pool.map(lambda seed: one_chunk(options, seed), seeds)):
            sums.update(answer.counts)
            for line in answer.wrong:
                print(f"{line} (kernels from seed {seed} on)", flush=True)
            for line in answer.differences if options.differences else ():
                print(line, flush=True)
    for name, count in sums.items():
        print(f"{count:12} {name}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(sums, file, indent=1)
    return 1 if sums["contradictions"] else 0


if __name__ == "__main__":
    sys.exit(main())
