#!/usr/bin/env python3
"""Breaks rules of the data-flow over machine code, one at a time, and sees whether the oracle notices.

Of each rule a copy of its source is changed, compiled, and linked before the library. The oracle has to contradict
every one of them. Exit status 1 where it does not.
"""

import argparse
import glob
import os
import subprocess
import sys
import tempfile

import corpus

ROOT = os.path.join(corpus.HERE, "..", "..")
FOLDER = "analyzer/kernel_code"

# What is broken; in which file; what stands there, and what takes its place.
RULES = {
    "a choice of two values is the first": (
        "sass_flow/transfer.cpp", "for (const Content& each : all) result = contents_.either(result, each);",
        "if (!all.empty()) result = contents_.either(result, all.front());"),
    "where ways meet, one counts": (
        "sass_flow/contents_flow.cpp",
        "for (const ValueId from : values_.choices(value)) choices_[from].push_back(value);",
        "if (!values_.choices(value).empty()) choices_[values_.choices(value).back()].push_back(value);"),
    "what is stored at an unknown place of local memory is nowhere": (
        "sass_flow/memory_flow.cpp", "if (!place) return join_memory(anywhere_local_, what, local_readers_);",
        "if (!place) return;"),
    "at an unknown place of local memory lies what was stored at one": (
        "sass_flow/memory_flow.cpp", "if (!place) return contents_.either(all_local_, anywhere_local_);",
        "if (!place) return anywhere_local_ == Content{} && !local_.empty() ? local_.begin()->second : anywhere_local_;"),
    "a table has no first word": (
        "sass_flow/contents_flow.cpp", "for (std::uint32_t at = (param.offset + 7) / 8 * 8;",
        "for (std::uint32_t at = (param.offset + 7) / 8 * 8 + 8;"),
    "atomics only read": (
        "sass_flow/flow.cpp", "touch(words, memory.reads, memory.writes);",
        "touch(words, memory.reads, memory.writes && !memory.reads);"),
    "an address comes from one word": (
        "sass_flow/flow.cpp", "if (memory.writes && !store(contents_.stored(at))) return false;",
        "if (memory.writes && !store(contents_.stored(at))) return false;\n    if (words.size() > 1) words.resize(1);"),
    "what is stored is not looked at": (
        "sass_flow/flow.cpp", "if (root < contents.words()) stored_.insert(8 * root);", ""),
    "variables are not written": (
        "sass_flow/flow.cpp", "mode.second |= memory.writes;", ""),
    "conditions are taken for their opposite": (
        "sass_code/values_equal.cpp", "(each.if_true == fact.is_true ? 0 : 1)", "(each.if_true == fact.is_true ? 1 : 0)"),
    "what is kept under a condition is looked at under that": (
        "sass_code/values_equal.cpp", "facts.back().is_true = !guard.is_true;", ""),
    "a branch that is taken tells the opposite": (
        "sass_code/values_equal.cpp", "(here.begin == target) == guard.is_true", "(here.begin == target) != guard.is_true"),
    "whoever does not leave has the condition to leave": (
        "sass_code/values_equal.cpp", "facts.push_back({guard.predicate, !guard.is_true});",
        "facts.push_back({guard.predicate, guard.is_true});"),
    "the same of other operands is the same": (
        "sass_code/values_equal.cpp", "for (const ValueId id : read(at)) key.push_back(representative(id));", ""),
    "what two calls of a function write is the same": (
        "sass_code/values_equal.cpp", "|| returned_.contains(value)", ""),
    "what a function writes is the caller's": (
        "sass_code/values.cpp",
        "return !here.from.front().after_call || !flow_.functions[flow_.blocks[from].callee].clobbered.test(variable);",
        "return true;"),
    "a call from which nothing comes back leads nowhere": (
        "sass_code/reach.cpp", "end.to.push_back(*end.call);", ""),
    "a return by an address leads to after the call": (
        "sass_code/returns.cpp", "if (place_of(source, at, half) != behind) return false;", "(void)source;"),
    "what matrices bring comes from nowhere": (
        "sass_flow/memory_flow.cpp", "return is_small ? contents_.weak(shared_) : shared_;",
        "if (flow_.instructions[at].what == Class::load && std::string_view(flow_.instructions[at].name) == \"LDSM\") "
        "return Content{}; return is_small ? contents_.weak(shared_) : shared_;"),
    "a tensor that is written is read": (
        "sass_flow/flow.cpp",
        "touch(words, !writes || instruction.opcode == kUtmaredg, writes);", "touch(words, true, false);"),
    "a tensor map that is found by an index is the first": (
        "sass_flow/flow.cpp", "if ((kernel_.params_at + at) % kMapAlignment == 0) words.push_back(at);",
        "if ((kernel_.params_at + at) % kMapAlignment == 0 && words.empty()) words.push_back(at);"),
    "bulk copies read alone": (
        "sass/decode.cpp", "to.reads = out_.opcode == kUblkred;\n    to.writes = true;",
        "to.reads = out_.opcode == kUblkred;\n    to.writes = to.space == Space::shared;"),
    "asynchronous copies do not read": (
        "sass_flow/flow.cpp", "if (memory.space != Space::global && memory.space != Space::generic) return true;",
        "if ((memory.space != Space::global && memory.space != Space::generic) || "
        "flow_.instructions[at].what == Class::async_copy) return true;"),
    "what may be shared memory is": (
        "sass_flow/memory_flow.cpp", "std::all_of(high.begin(), high.end(), [&](Root root) {",
        "std::any_of(high.begin(), high.end(), [&](Root root) {"),
    "what is copied is the copy of before": (
        "sass_code/values_equal.cpp", "make_same(this->written(at)[i], read(at)[i]);",
        "make_same(this->written(at)[i], at > 0 && read(at - 1).size() == 1 ? read(at - 1)[0] : read(at)[i]);"),
}


def break_rule(source, old, new, path):
    with open(os.path.join(ROOT, FOLDER, source)) as file:
        text = file.read()
    words = " ".join(old.split())
    at = [i for i in range(len(text)) if text.startswith(old, i)]
    if not at:  # it goes over several lines
        flat, places = "", []
        for i, letter in enumerate(text):
            if letter.isspace() and flat.endswith(" "):
                continue
            flat += " " if letter.isspace() else letter
            places.append(i)
        begin = flat.find(words)
        if begin < 0:
            raise RuntimeError(f"{source} has no {old!r}")
        text = text[:places[begin]] + new + text[places[begin + len(words) - 1] + 1:]
    else:
        text = text[:at[0]] + new + text[at[0] + len(old):]
    with open(path, "w") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, metavar="DIR", help="a build tree")
    parser.add_argument("--nvcc", default="/usr/local/cuda/bin/nvcc", help="the compiler (default %(default)s)")
    parser.add_argument("--programs", type=int, default=50, metavar="N", help="how many kernels (default %(default)s)")
    parser.add_argument("--mutations", type=int, default=40, metavar="N", help="changed programs made of each of them")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the first kernel (default %(default)s)")
    parser.add_argument("--only", metavar="TEXT", help="rules that have this in their name")
    options = parser.parse_args()
    objects = glob.glob(os.path.join(options.build, "tests/sass/CMakeFiles/sass_oracle.dir/check/*.o"))
    libraries = [os.path.join(options.build, "tests/sass/libsass_emulator.a"),
                 os.path.join(options.build, "analyzer/kernel_code/libnimble_code.a")]
    for name in ("lz4", "zstd", "xxhash"):
        libraries += glob.glob(os.path.join(options.build, "**", f"libnimble_{name}.a"), recursive=True)
    compiler = os.environ.get("CXX", "c++")
    unnoticed = []
    with tempfile.TemporaryDirectory() as folder:
        sets = []
        for level in corpus.ARCHS:
            of_level = os.path.join(folder, str(level))
            corpus.write_kernels(of_level, options.seed, options.programs if level == 75 else options.programs // 2, level)
            sets.append((of_level, *corpus.compile_kernels(options.nvcc, of_level, ptx_arch=level)))
        for name, (source, old, new) in RULES.items():
            if options.only and options.only not in name:
                continue
            path, oracle = os.path.join(folder, os.path.basename(source)), os.path.join(folder, "oracle")
            break_rule(source, old, new, path)
            corpus.run([compiler, "-std=c++20", "-O1", "-w", "-I", ROOT, "-I", os.path.join(ROOT, "include"), path,
                        *objects, *libraries, "-o", oracle])
            os.remove(path)
            wrong = 0
            for of_level, ptx, cubins in sets:
                answer = corpus.ask(oracle, of_level, ptx, cubins, runs=20, mutations=options.mutations)
                wrong = answer.counts["contradictions"]
                if wrong:
                    break
            print(f"{wrong:5} contradictions: {name}", flush=True)
            if wrong == 0:
                unnoticed.append(name)
    for name in unnoticed:
        print(f"not noticed: {name}")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
