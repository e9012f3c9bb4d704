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
        "sass_flow/transfer_functions.cpp", "for (const Content& each : all) result = contents_.either(result, each);",
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
        "sass_flow/flow.cpp", "Accessed& access = touch(words, memory.reads, memory.writes);",
        "Accessed& access = touch({words.front()}, memory.reads, memory.writes);"),
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
        "sass_code/returns.cpp", "if (place_of(source, at, half) != after_call) return false;", "(void)source;"),
    "what matrices bring comes from nowhere": (
        "sass_flow/memory_flow.cpp", "return is_small ? contents_.weak(shared_) : shared_;",
        "if (flow_.instructions[at].what == Class::load && std::string_view(flow_.instructions[at].name) == \"LDSM\") "
        "return Content{}; return is_small ? contents_.weak(shared_) : shared_;"),
    "a tensor that is written is read": (
        "sass_flow/flow.cpp",
        "touch(words, !writes || instruction.opcode == kUtmaredg, writes).complete", "touch(words, true, false).complete"),
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

# Of how far addresses get: kernels of make_index_kernels.py show them.
EXTENTS = {
    "of what is selected, the opposite is known": (
        "sass_expressions/narrow.cpp", "is_first != (flow_.word(at).bit(kNegated) != 0)}", "is_first == (flow_.word(at).bit(kNegated) != 0)}"),
    "what is added to what is known is left out": (
        "sass_expressions/narrowing.cpp", "list_.add(known, list_.number(sum->second, 32))", "known"),
    "of several pointers the first is taken": (
        "../addresses/evaluate.cpp", "i < (has_condition ? 1 : operands_of(each.op))", "i < std::min(operands_of(each.op), 1u)"),
    "an index leads to one of the pointers": (
        "../addresses/evaluate.cpp", "taken.add(lookup->first, std::int64_t{lookup->last} + lookup->bytes)", "taken.add(lookup->first, lookup->first + lookup->bytes)"),
    "a number that is taken by an index is the next one": (
        "sass_expressions/narrow.cpp", "list_.number_at(id, offset, bytes)", "list_.number_at(id, offset + bytes, bytes)"),
    "a byte that is taken by an index has its sign": (
        "sass_expressions/narrow.cpp", "return is_signed ? with_sign(number, bytes) : number;", "return with_sign(number, bytes);"),
    "bytes in another order are taken from the begin of a register": (
        "sass_expressions/narrow.cpp", "shifted(ExpressionOp::shift_right, plain(at, operand, depth), first)",
        "plain(at, operand, depth)"),
    "a comparison has the opposite outcome": (
        "sass_expressions/conditions.cpp", "holds ? kRelations[how] : kOpposites[how]", "holds ? kOpposites[how] : kRelations[how]"),
    "a comparison without a sign has one": (
        "sass_expressions/conditions.cpp", "kOpposites[how], word.bit(73) != 0}", "kOpposites[how], true}"),
    "a branch leads where its condition does not hold": (
        "sass_expressions/conditions.cpp", "if (flow_.blocks[to].begin != target)", "if (flow_.blocks[to].begin == target)"),
    "what goes on had the condition to end": (
        "sass_expressions/conditions.cpp", "fact.is_true = !fact.is_true;\n    return fact.predicate", "return fact.predicate"),
    "a table's rows are those of the other outcome": (
        "sass_expressions/conditions.cpp", "(table >> row & 1) == (fact.is_true ? 1u : 0u)", "(table >> row & 1) != (fact.is_true ? 1u : 0u)"),
    "upper halves are compared alone": (
        "sass_expressions/conditions.cpp", "comparison.lower = values_.all()[lower].instruction;", "return comparison;"),
    "any block before it dominates a block": (
        "sass_expressions/dominators.cpp", "now = now == kNoBlock ? from.block : common(now, from.block);", "now = from.block;"),
    "what holds at one place holds where the same is computed": (
        "sass_expressions/addresses.cpp", "if (values_.stands_for_others(instruction)) return {};", ""),
    "a loop's counter begins anew with whatever it counts": (
        "../addresses/loops.cpp", "if (other.goes_on[i] && !counter.goes_on[i]) return false;", ""),
    "a loop repeats once less": ("../addresses/loops.cpp", "room / step);", "room / step - 1);"),
    "a loop ends a step before it is equal": (
        "../addresses/loops.cpp", "const Range::Number stops = to.lo - step;", "const Range::Number stops = to.lo - 2 * step;"),
    "what grows is taken as it is": (
        "../addresses/evaluate.cpp", "if (round >= kPlainRounds) now = widened(known, now, each.bits, round);",
        "if (round >= kPlainRounds) return false;"),
    "the last thread is not there": (
        "../addresses/evaluate.cpp", "return Range::of(0, Range::Number{threads} - 1, bits);", "return Range::of(0, Range::Number{threads} - 2, bits);"),
    "a sign is extended by zeros, and zeros by a sign": (
        "../addresses/range.cpp", "op == widen ? a.as_unsigned(32) : a.as_signed(32)", "op == widen ? a.as_signed(32) : a.as_unsigned(32)"),
    "less leaves out the last": ("../addresses/range.cpp", "x.hi = std::min(x.hi, y.hi - 1)", "x.hi = std::min(x.hi, y.hi - 2)"),
    "a choice ends where the first does": (
        "../addresses/range.cpp", "std::max(a.hi, b.hi + shift), bits);", "std::max(a.hi, std::min(a.hi, b.hi) + shift), bits);"),
    "a product's ends are those of the lower factor": (
        "../addresses/range.cpp", "__builtin_mul_overflow(x.hi, q, &all[3])", "__builtin_mul_overflow(x.hi, p, &all[3])"),
    "a shift to the right has no sign": (
        "../addresses/range.cpp", "const auto [least, most] = places(by, bits);\n  const Range x = is_signed ? a.as_signed(bits) : a.as_unsigned(bits);",
        "const auto [least, most] = places(by, bits); const Range x = a.as_unsigned(bits);"),
    "what is kept of bits is half": ("../addresses/range.cpp", "return Range::of(0, bits_kept, bits);", "return Range::of(0, bits_kept / 2, bits);"),
    "or adds no bits": ("../addresses/range.cpp", "std::min(ones(std::max(x.hi, y.hi)), x.hi + y.hi)", "std::max(x.hi, y.hi)"),
    "the least is the greatest": ("../addresses/range.cpp", "return is_least ? Range::of", "return !is_least ? Range::of"),
    "a remainder is half as large": ("../addresses/range.cpp", "* divisors - 1;", "* divisors / 2;"),
    "a quotient is by the largest alone": ("../addresses/range.cpp", "hi = y.lo == 0 ? x.hi : x.hi / y.lo;", "hi = y.hi == 0 ? x.hi : x.hi / y.hi;"),
    "an upper half is another operand's": (
        "sass_expressions/wide_sums.cpp", "wide_operand(low, lows[i], high, highs[(*order)[i]], depth)", "wide_operand(low, lows[i], high, highs[((*order)[i] + 1) % 3], depth)"),
    "what is negated is added": (
        "sass_expressions/narrow.cpp", "return operand.negated ? list_.negate(id) : id;", "return id;"),
    "a sum of three is one of two": (
        "sass_expressions/narrow.cpp", "&from.a, &from.b, has_three ? &from.c : nullptr", "&from.a, &from.b, (const SourceOperand*)nullptr"),
    "a product's operands stand where those of others do": (
        "sass_expressions/operands.cpp", "const bool is_swapped = (form == 2", "const bool is_swapped = false && (form == 2"),
    "an access has one byte": ("sass_flow/flow.cpp", "access.uses.push_back({id, memory.bytes});", "access.uses.push_back({id, 1});"),
}

# Of what launches exclude: kernels of make_choice_kernels.py show them.
CHOICES = {
    "bytes that go on with the highest bit below have no sign": (
        "sass_expressions/narrow.cpp", "shifted(ExpressionOp::shift_right_signed, shifted(", "shifted(ExpressionOp::shift_right, shifted("),
    "a choice is taken for its opposite": (
        "sass_expressions/conditions.cpp", "holds ? kRelations[how] : kOpposites[how]", "holds ? kOpposites[how] : kRelations[how]"),
    "a uniform branch is taken where its condition does not hold": (
        "sass_expressions/conditions.cpp", "word.bit(kNegatesUniform) == 0}", "word.bit(kNegatesUniform) != 0}"),
    "control gets to a block from one before it": (
        "sass_expressions/occurrence.cpp", "any(std::move(ways)) : always_;\n      is_known", "ways.front() : always_;\n      is_known"),
    "what one caller does is what all do": (
        "sass_expressions/occurrence.cpp", "ways.push_back(blocks_[caller]);", "ways.assign(1, blocks_[caller]);"),
    "of two conditions, either of which will do, both have to hold": (
        "sass_expressions/occurrence.cpp", "(joined == kAnd) == fact.is_true ? both(here, other) : any({here, other})", "both(here, other)"),
    "a further condition is negated": (
        "sass_expressions/occurrence.cpp", "const bool holds = is_true != (word.bit(negated) != 0);", "const bool holds = is_true == (word.bit(negated) != 0);"),
    "a table of which all rows will do has none": (
        "sass_expressions/occurrence.cpp", "if (wanted == all) return always_;", "if (wanted == all) return never_;"),
    "a predicate that is chosen is none": (
        "sass_expressions/occurrence.cpp", "return ways.empty() ? always_ : any(std::move(ways));", "return ways.empty() ? always_ : never_;"),
    "a branch with two conditions is not taken where both do not hold": (
        "sass_expressions/occurrence.cpp", "return is_taken ? both(first, other) : any({first, other});", "return both(first, other);"),
    "of what may be, the first is": (
        "sass_expressions/occurrence.cpp", "if (all.size() == 1) return all.front();", "return all.front();"),
    "an instruction runs where its guard does not hold": (
        "sass_expressions/occurrence.cpp", "both(of_block(at), of(guard));", "both(of_block(at), of(Fact{guard.predicate, !guard.is_true}));"),
    "a copy reads where its predicate does not hold": (
        "sass_expressions/occurrence.cpp", "input(at, at_other, negated, true, 0)) : id", "input(at, at_other, negated, false, 0)) : id"),
    "of what an address is chosen from, one counts": (
        "sass_flow/provenance.cpp", "return occurrence_.any(std::move(ways));\n}\n\nExpressionId Provenance::of_result",
        "return ways.front();\n}\n\nExpressionId Provenance::of_result"),
    "a selection takes the other": (
        "sass_flow/provenance.cpp", "chosen(registers.at == kAtA)", "chosen(registers.at != kAtA)"),
    "a sum is a number where one of its parts is": (
        "sass_flow/provenance.cpp", "all = occurrence_.both(all, begin(each, question));\n    return all;", "all = occurrence_.never();\n    return all;"),
    "what is loaded is loaded where nothing is": (
        "sass_flow/provenance.cpp", "if (!is_computed(instruction.what)) return here;", "if (!is_computed(instruction.what)) return occurrence_.never();"),
    "of all doubts of a kind, the first counts": (
        "sass_flow/flow.cpp", "occurrence.any(doubt.ways)", "occurrence.any({doubt.ways.front()})"),
    "numbers are not doubted": (
        "sass_flow/flow.cpp", "if (is_number) {", "if (is_number && words.empty()) {"),
    "what nothing else is known of is not touched": (
        "sass_flow/flow.cpp", "return doubt(at, by_launch().occurrence.of(at), objections", "return doubt(at, by_launch().occurrence.never(), objections"),
    "of what was stored in local memory, the first is loaded": (
        "sass_expressions/local_memory.cpp", "if (alternatives.size() == 1) alternatives.push_back(alternatives.front());",
        "alternatives.assign(2, alternatives.front());"),
    "what was there before anything was stored is not loaded": (
        "sass_expressions/local_memory.cpp", "if (is_before) return *all;\n  }\n  return std::nullopt;", "}\n  return *all;"),
    "a bit is set where its condition does not hold": (
        "sass_code/values_predicates.cpp", "one.is_one == fact.is_true, fact.predicate}", "one.is_one != fact.is_true, fact.predicate}"),
    "what is not set under a condition was cleared": (
        "sass_code/values_predicates.cpp", "if (one.kind != fixed || other.kind != fixed) return {};",
        "if (one.kind != fixed || (other.kind != fixed && !one.is_one)) return {};"),
    "a bit that is kept is its neighbour": (
        "sass_code/values_predicates.cpp", "Bit{kept, true, value, which}", "Bit{kept, true, value, which ^ 1}"),
    "of several bits that are tested, the first counts": (
        "sass_code/values_predicates.cpp", "|| (found.kind == Bit::Kind::predicate && found != each)) return {};", ") return found;"),
    "a predicate that is the opposite of another is the same": (
        "sass_code/values_predicates.cpp", "if (as.is_one) return make_same", "if (true) return make_same"),
    "where ways meet, a bit is that of one of them": (
        "sass_code/values_predicates.cpp", "if (all && *all != source) all = Bit{};",
        "if (all && *all != source) { if (all->kind != Bit::Kind::predicate) all = source; continue; }"),
    "of the ways to what is loaded back, one counts": (
        "sass_code/local_words.cpp", "if (is_sure) continue;", "if (is_sure) return found;"),
    "what is stored under a condition is stored over": (
        "sass_code/local_words.cpp", "is_sure = when == Guard::When::always;", "is_sure = true;"),
    "what was there before the first store is nothing": (
        "sass_code/local_words.cpp", "|| here.from.empty()) return std::nullopt;", "|| here.from.empty()) continue;"),
    "an address comes from where the first store has it": (
        "sass_flow/provenance.cpp", "for (const LocalWords::Stored& each : *stored)", "for (const LocalWords::Stored& each : {stored->front()})"),
    "an index into the parameters leads to the first of them": (
        "../addresses/evaluate.cpp", "at <= lookup.last; at += lookup.bytes) {", "at <= lookup.first; at += lookup.bytes) {"),
    "what rounds a quotient to zero is not added": (
        "sass_expressions/wide_sums.cpp", "list_.add(list_.make(ExpressionOp::widen, bits),", "list_.add(list_.number(0, 64),"),
    "parameters are read at the next word": (
        "../addresses/evaluate.cpp", "std::memcpy(&value, launch_.params.data() + first, bytes);",
        "std::memcpy(&value, launch_.params.data() + (first + 8 < launch_.params.size() ? first + 4 : first), bytes);"),
    "a launch's size is one less": (
        "../addresses/evaluate.cpp", "at / 3 == 2 ? threads : blocks, bits", "(at / 3 == 2 ? threads : blocks) - 1, bits"),
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
                 os.path.join(options.build, "analyzer/libnimble_analyzer.a"),
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
        indices = os.path.join(folder, "indices")
        corpus.write_index_kernels(indices, options.seed, 2 * options.programs)
        of_indices = [(indices, *corpus.compile_kernels(options.nvcc, indices))]
        rules = [(name, sets, rule) for name, rule in RULES.items()]
        rules += [(name, of_indices, rule) for name, rule in EXTENTS.items()]
        choices = os.path.join(folder, "choices")
        corpus.write_choice_kernels(choices, options.seed, 4 * options.programs)
        of_choices = [(choices, *corpus.compile_kernels(options.nvcc, choices))]
        copies = os.path.join(folder, "copies")
        corpus.write_choice_kernels(copies, options.seed, 2 * options.programs)
        of_choices.append((copies, *corpus.compile_kernels(options.nvcc, copies, ptx_arch=80)))  # they copy asynchronously
        rules += [(name, of_choices, rule) for name, rule in CHOICES.items()]
        for name, sets, (source, old, new) in rules:
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
