#!/usr/bin/env python3
"""Writes random CUDA C++ kernels whose indices are to be bounded, and a table of what their parameters are.

Loops of all kinds, guards, clamps, division, offset calculators, strides of 32 and 64 bits, bits, choices between
pointers, values that pass through functions, shared memory and other lanes. Most statements have a pointer of their
own, so that one whose index has no bound hides no other. The same seed gives the same text.
"""

import os
import random

from kernel_expressions import Expressions

PREFACE = r"""
typedef long long i64;
typedef unsigned long long u64;
struct Divider { unsigned divisor, magic, shift; };
struct Offsets { int dims; Divider sizes[3]; unsigned strides[3][2]; };
struct Split { unsigned quotient, rest; };
struct Lookup { int* p[4]; unsigned char which[16]; signed char back[8]; unsigned short row[8]; int first[4]; };
__device__ __forceinline__ Split split(const Divider& by, unsigned n) {
  unsigned t = __umulhi(n, by.magic), q = (t + n) >> by.shift;
  return {q, n - q * by.divisor};
}
__device__ __forceinline__ void offsets_of(const Offsets& o, unsigned at, unsigned* out) {
  out[0] = out[1] = 0;
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    if (d == o.dims) break;
    Split s = split(o.sizes[d], at);
    at = s.quotient;
    out[0] += s.rest * o.strides[d][0];
    out[1] += s.rest * o.strides[d][1];
  }
}
__device__ __noinline__ int clamped(int i, int n) { return i < 0 ? 0 : i > n ? n : i; }
__device__ __noinline__ int wrapped(int i, int n) { i %= (n | 1); return i < 0 ? -i : i; }
__device__ __noinline__ void put(int* p, int i, int value) { if (i < 40) p[i] = value; }
__device__ __noinline__ int* ahead(int* p, int n) { return p + (n & 7) - 2; }
__device__ __noinline__ i64 area(int a, int b) { return (i64)a * b; }
__device__ __noinline__ unsigned sum_to(unsigned n) { unsigned s = 0; for (unsigned i = 0; i < (n & 15); ++i) s += i; return s; }
"""


class Kernel(Expressions):
    """Random statements, each of which touches memory."""

    def __init__(self, rng, name):
        super().__init__(rng, name)
        self.make_body()

    def say(self, text):
        self.lines.append("  " * self.indent + text)

    def pointer(self):
        if self.unused and self.chance(85):
            return self.unused.pop(self.rng.randrange(len(self.unused)))
        return self.rng.choice(self.pointers)

    def touch(self, p, i):
        kind = self.rng.randrange(12)
        if kind < 5:
            return f"{p}[{i}] = {self.pick('acc', '1', 'acc + 2')};"
        if kind < 7:
            return f"acc += {p}[{i}];"
        if kind == 7:
            return f"((unsigned char*){p})[{i}] = acc;"
        if kind == 8:
            return f"((short*){p})[{i}] = acc;"
        if kind == 9:
            return f"((i64*){p})[{i}] = acc;"
        if kind == 10:
            return f"((int4*){p})[{i}] = make_int4(acc, 1, 2, acc);"
        return f"atomicAdd(&{p}[{i}], acc);"

    def unroll(self):
        kind = self.pick(0, 0, 1, 1, 4)
        if kind:
            self.lines.append(f"#pragma unroll {kind}")

    def wide_end(self):
        """Where a loop ends that counts with 64 bits."""
        return self.rng.choice(self.longs)

    def loop(self, i):
        """Head and tail of a loop that counts with i."""
        self.unroll()
        n, first = self.pick(self.few(), self.few(), self.limit()), self.pick("0", "0", self.thread(), self.number(1))
        s = str(self.rng.randint(1, 7))
        step = self.pick("1", s, s, f"max({self.rng.choice(self.ints)} & 7, 1)", "(int)blockDim.x", "(int)(blockDim.x * gridDim.x)")
        down = f"(({n} & 15) * {s})"
        return self.pick(
            (f"for (int {i} = {first}; {i} < {n}; {i} += {step}) {{", "}"),
            (f"for (int {i} = {first}; {i} < {n}; {i} += {step}) {{", "}"),
            (f"for (int {i} = {n}; {i} >= 0; {i} -= {step}) {{", "}"),
            (f"for (int {i} = {n} - 1; {i} > {self.const(-9, 3)}; {i} -= {s}) {{", "}"),
            (f"for (int {i} = 0; {i} != {down}; {i} += {s}) {{", "}"),
            (f"for (int {i} = {down}; {i} != 0; {i} -= {s}) {{", "}"),
            (f"for (unsigned {i} = {n} & 15; {i}-- > 0;) {{", "}"),
            (f"for (unsigned {i} = {self.thread()}; {i} < (unsigned){n}; {i} += {s}) {{", "}"),
            (f"for (i64 {i} = {first}; {i} < {self.pick(n, self.wide_end())}; {i} += {step}) {{", "}"),
            (f"for (u64 {i} = {self.rng.randint(0, 3)}; {i} <= ({n} & 15); ++{i}) {{", "}"),
            (f"int {i} = {first}; do {{", f"{i} += {s}; }} while ({i} < {n});"),
            (f"int {i} = {first}; while (true) {{ if ({i} >= {n}) break;", f"{i} += {s}; }}"),
            (f"int {i} = {n} & 15; while ({i}--) {{", "}"),
            (f"for (int {i} = 1; {i} < {n}; {i} <<= 1) {{", "}"),
            (f"for (int {i} = {self.pick('64', '(int)blockDim.x', '(' + n + ' & 127)')}; {i} > 0; {i} >>= 1) {{", "}"),
            (f"for (unsigned {i} = {first} & 63; {i} < 70; {i} = {i} * 2 + 1) {{", "}"))

    def index(self, i):
        """Of a counter."""
        return self.pick(i, i, i, f"{i} + {self.thread()}", f"{i} * {self.pick('4', '-3', self.rng.choice(self.ints))}",
                         f"{i} * {self.rng.choice(self.longs)}", f"({i} ^ 5)", f"{i} - {self.rng.choice(self.ints)}", f"({i} % 5)",
                         f"{i} * 33 + {self.thread()}", f"-{i}", f"(u64){i} / 3", f"(unsigned){i}")

    def statement(self):
        maker = self.rng.choice([self.straight, self.guarded, self.guarded, self.counted, self.counted, self.nested, self.walked,
                                 self.ring, self.ring, self.chosen, self.called, self.calculated, self.wide_index, self.leaving,
                                 self.chained, self.swapped, self.resumed, self.grid_stride, self.unsigned_index, self.searched,
                                 self.shuffled] + [self.tabled] * (6 if self.table else 0))
        self.in_branch = maker not in (self.straight, self.guarded, self.calculated)
        self.say("{")
        self.indent += 1
        kept = list(self.counts)
        maker()
        self.counts = kept
        self.indent -= 1
        self.say("}")

    def straight(self):
        self.say(self.touch(self.pointer(), self.number()))

    def guarded(self):
        i, p = self.new("i"), self.pointer()
        self.say(f"{self.pick('int', 'int', 'int', 'i64', 'unsigned')} {i} = {self.number()};")
        self.say(f"if ({self.guard(i)}) {{ {self.touch(p, self.index(i))} }}")
        if self.chance(30):
            self.say(f"else {{ {self.touch(self.pointer(), self.index(i))} }}")

    def counted(self):
        i, p = self.new("i"), self.pointer()
        head, tail = self.loop(i)
        self.say(head)
        if self.chance(25):
            self.say(f"  if ({self.guard(i)}) {self.pick('continue' if tail == '}' else 'break', 'break')};")
        self.say("  " + self.touch(p, self.index(i)))
        if self.chance(30):
            self.say("  " + self.touch(self.pointer(), self.index(i)))
        self.say(tail)

    def nested(self):
        i, j, p = self.new("i"), self.new("j"), self.pointer()
        head, tail = self.loop(i)
        self.say(head)
        inner, end = self.loop(j)
        self.say("  " + inner)
        at = self.pick(f"{i} * {self.rng.choice(self.ints)} + {j}", f"{i} * 16 + {j}", f"({i} + {j}) * 3", f"({i} - {j})", f"({i} & 7) * 8 + ({j} & 7)")
        self.say("    " + self.touch(p, at))
        self.say("  " + end)
        self.say(tail)

    def walked(self):
        p, q, i = self.pointer(), self.new("q"), self.new("i")
        step = self.pick("1", "3", "-2", self.rng.choice(self.ints), self.rng.choice(self.longs), "(int)blockDim.x", "((acc & 1) + 1)")
        if self.chance(35):
            e = self.new("e")
            self.say(f"int *{q} = {p} + {self.pick('0', self.thread(), '3')}, *{e} = {p} + {self.limit()};")
            s = self.rng.randint(1, 5)
            self.say(self.pick(f"for (; {q} < {e}; {q} += {s}) *{q} = acc;", f"while ({q} < {e}) {{ acc += *{q}; {q} += {s}; }}",
                               f"for ({e} = {q} + {s} * ({self.few()} & 15); {q} != {e}; {q} += {s}) *{q} = 7;"))
            return
        self.say(f"int* {q} = {p} + {self.pick('0', self.thread(), self.number(1))};")
        head, tail = self.loop(i)
        self.say(head)
        self.say("  " + self.touch(q, self.pick("0", "1", "-1")))
        if self.chance(25):
            self.say(f"  if (acc & 4) continue;" if tail == "}" else "  acc += 1;")
        self.say(f"  {q} += {step};")
        self.say(tail)
        if self.chance(40):
            self.say(self.touch(q, "0"))

    def ring(self):
        """Two that count, of which one begins anew while the other goes on."""
        p, q, c, i, k = self.pointer(), self.pointer(), self.new("c"), self.new("i"), self.new("k")
        size, n = self.rng.randint(2, 8), self.pick("40", "(" + self.rng.choice(self.ints) + " & 63)", "25")
        self.say(f"int {c} = {self.pick('0', '0', '1')}, {k} = {self.pick('0', self.thread())};")
        form = self.rng.randrange(5)
        if form == 0:
            self.unroll()
            self.say(f"for (int {i} = 0; {i} < {n}; ++{i}) {{ {self.touch(p, c)} {self.touch(q, k)} {k} += 3; if (++{c} == {size}) {c} = 0; }}")
        elif form == 1:
            self.say(f"int {i} = 0;")
            self.say(f"while ({i} < {n}) {{ ++{i}; {self.touch(q, k)} ++{k}; if ({c} >= {size}) {{ {c} = 0; continue; }} {self.touch(p, c)} ++{c}; }}")
        elif form == 2:
            self.say(f"int* w = {q}; int {i} = 0;")
            self.say(f"again: if ({c} < {size}) {{ {self.touch(p, c)} *w = acc; w += 2; ++{c}; goto again; }}")
            self.say(f"if (++{i} < {n}) {{ {c} = 0; goto again; }}")
            self.lines[-2] = self.lines[-2].replace("again", "again_" + c)
            self.lines[-1] = self.lines[-1].replace("again", "again_" + c)
        elif form == 3:
            self.say(f"for (int {i} = 0; {i} < {n}; ++{i}) {{ {c} = {c} == {size} ? {self.pick('0', '1')} : {c} + 1; {self.touch(p, c)} {k} += {c}; {self.touch(q, k)} }}")
        else:
            self.say(f"int row = 0; for (int {i} = 0; {i} < {n}; ++{i}) {{ {self.touch(p, f'row * 10 + {c}')} {self.touch(q, 'row')}"
                     f" {c} += 2; if ({c} > {size}) {{ {c} = 0; ++row; }} }}")

    def chosen(self):
        a, b, q = self.pointer(), self.pointer(), self.new("q")
        self.say(f"int* {q} = {self.condition()} ? {a} + {self.number(1)} : {b} + {self.number(1)};")
        if self.chance(30):
            self.say(f"if ({self.condition(1)}) {q} = {self.pick(a, b)} + {self.const()};")
        self.say(self.touch(q, self.pick("0", self.thread(), self.number(1))))

    def called(self):
        p = self.pointer()
        self.say(self.pick(f"put({p}, {self.number()}, acc);", self.touch(p, f"clamped({self.number()}, {self.limit()})"),
                           self.touch(p, f"wrapped({self.number()}, {self.limit()})"), f"*ahead({p}, {self.number()}) = 1;",
                           f"ahead({p} + {self.thread()}, {self.number()})[2] = acc;", self.touch(p, f"area({self.number(1)}, {self.number(1)})"),
                           f"put({p} + 3, {self.thread()} * 4, acc);"))

    def calculated(self):
        p = self.pointer()
        if self.offsets and self.chance(60):
            o = self.new("o")
            self.say(f"unsigned {o}[2]; offsets_of({self.offsets}, {self.thread()}, {o});")
            self.say(self.touch(f"((int*)((char*){p} + {o}[0]))", "0") if self.chance(50) else self.touch(p, f"{o}[1]"))
            return
        if self.divider:
            s = self.new("s")
            self.say(f"Split {s} = split({self.divider}, {self.number(1)});")
            self.say(self.touch(p, self.pick(f"{s}.rest", f"{s}.quotient", f"{s}.quotient * 9 + {s}.rest")))
            return
        r = self.pick("3", "7", "24", "100", f"({self.rng.choice(self.ints)} | 1)")
        self.say(f"int t = {self.number(1)};")
        self.say(self.touch(p, f"(t / {r}) * {self.pick('4', self.rng.choice(self.ints))} + t % {r}"))

    def wide_index(self):
        i, p = self.new("k"), self.pointer()
        self.say(f"{self.pick('i64', 'u64')} {i} = {self.wide()};")
        guard = self.pick(f"{i} < 100 && {i} >= 0", f"{i} < {self.rng.choice(self.longs)}", f"{i} <= {self.limit()} && {i} > 2", f"!({i} >= 60)",
                          f"{i} == {self.limit()}", f"(int){i} < 50 && (int){i} > 0", f"{i} - 3 < 40ull")
        self.say((f"if ({guard}) " if self.chance(70) else "") + "{ " + self.touch(p, i) + " }")

    def leaving(self):
        """A loop with more than one way out."""
        p, i = self.pointer(), self.new("i")
        self.say(f"for (int {i} = {self.pick('0', self.thread())}; ; {i} += {self.rng.randint(1, 3)}) {{")
        self.say(f"  if ({i} >= {self.limit()}) break;")
        self.say(f"  if ({self.pick('acc > 90', f'{i} == 17', '(acc & 8)')}) {self.pick('break', 'break')};")
        self.say("  " + self.touch(p, self.index(i)))
        self.say("}")

    def chained(self):
        """Numbers that are made of each other step by step, each with its own bounds."""
        p, x = self.pointer(), self.new("x")
        self.say(f"int {x} = {self.number()};")
        for _ in range(self.rng.randint(1, 4)):
            self.say(self.pick(f"if ({self.guard(x)}) {x} = {self.number(1)};", f"{x} = {self.pick('min', 'max')}({x}, {self.limit()});",
                               f"if ({self.condition(1)}) {x} += {self.const(0, 9)};", f"{x} = {self.index(x)};", f"if ({x} < 0) {x} = -{x};",
                               f"if ({x} > {self.limit()}) {x} -= {self.limit()};"))
        self.say((f"if ({self.guard(x)}) " if self.chance(60) else "") + "{ " + self.touch(p, x) + " }")

    def swapped(self):
        """Pointers, or numbers, that change places in a loop."""
        a, b, i = self.new("x"), self.new("y"), self.new("i")
        p = self.pointer()
        if self.chance(50):
            q = self.pointer()
            self.say(f"int *{a} = {p}, *{b} = {q} + 1;")
            self.say(f"for (int {i} = 0; {i} < {self.few()}; ++{i}) {{ {self.touch(a, i)} int* t = {a}; {a} = {b}{self.pick('', ' + 1')}; {b} = t; }}")
        else:
            self.say(f"int {a} = {self.const(0, 5)}, {b} = {self.thread()};")
            self.say(f"for (int {i} = 0; {i} < {self.few()}; ++{i}) {{ {self.touch(p, a)} int t = {a}; {a} = {b}; {b} = t + {self.pick('1', '4', b)}; }}")

    def resumed(self):
        """A loop that goes on where another stopped."""
        p, i = self.pointer(), self.new("i")
        s = self.rng.randint(1, 4)
        self.say(f"int {i} = {self.pick('0', self.thread())};")
        self.say(f"for (; {i} + {s * 3} < {self.limit()}; {i} += {s * 4}) {{ {self.touch(p, i)} {self.touch(p, f'{i} + {s}')} }}")
        self.say(f"for (; {i} < {self.limit()}; {i} += {s}) {{ {self.touch(p, i)} }}")
        if self.chance(40):
            self.say(self.touch(self.pointer(), i))

    def grid_stride(self):
        p, i = self.pointer(), self.new("i")
        kind = self.pick("int", "unsigned", "i64", "u64")
        self.unroll()
        self.say(f"for ({kind} {i} = blockIdx.x * blockDim.x + threadIdx.x; {i} < {self.pick(self.limit(), self.rng.choice(self.longs))};"
                 f" {i} += blockDim.x * gridDim.x) {{ {self.touch(p, self.index(i))} }}")

    def unsigned_index(self):
        p, u = self.pointer(), self.new("u")
        self.say(f"unsigned {u} = {self.pick(self.rng.choice(self.unsigneds), f'(unsigned)({self.number(1)})')};")
        self.say(f"if ({self.pick(f'{u} < 40', f'{u} - 5 < 20', f'{u} > 4000000000u', f'{u} >= {self.rng.choice(self.unsigneds)} && {u} < 99')}) {{ "
                 + self.touch(p, self.pick(u, f"{u} + 1u", f"(i64){u} - 7", f"(int){u}", f"{u} * 2", f"~{u}")) + " }")

    def searched(self):
        """Halves an interval."""
        p, lo, hi = self.pointer(), self.new("l"), self.new("h")
        self.say(f"int {lo} = 0, {hi} = {self.pick('64', '100', '(' + self.rng.choice(self.ints) + ' & 255)')};")
        self.say(f"while ({lo} < {hi}) {{ int m = {self.pick(f'({lo} + {hi}) / 2', f'{lo} + ({hi} - {lo}) / 2', f'({lo} + {hi}) >> 1')};"
                 f" if ({p}[m] < acc) {lo} = m + 1; else {hi} = m; }}")
        if self.chance(50):
            self.say(self.touch(self.pointer(), lo))

    def shuffled(self):
        p, v = self.pointer(), self.new("v")
        lane = self.pick("0", "1", "threadIdx.x & 3", "(int)(31 - threadIdx.x % 32)")
        if self.chance(50):
            self.say(f"i64 {v} = {self.wide(1)}; {v} = __shfl_sync(~0u, {v}, {lane});")
            self.say(f"if ({v} >= 0 && {v} < 70) {{ {self.touch(p, v)} }}")
        else:
            self.say(f"int {v} = {self.number(1)};")
            self.say(f"for (int o = 16; o > 0; o >>= 1) {v} = {self.pick('max', 'min')}({v}, __shfl_xor_sync(~0u, {v}, o));")
            self.say(self.touch(p, f"{v} {self.pick('& 63', '')}"))

    def tabled(self):
        """What is taken from the parameters by an index: numbers, and pointers by these."""
        t, k = self.table, self.new("k")
        at = self.pick("blockIdx.x", "threadIdx.x", "(blockIdx.x + 2 * threadIdx.y)", f"({self.number(1)})", self.const(0, 3))
        self.say(f"int {k} = {t}.which[{at} & {self.pick('15', '7', '1')}];")
        p = self.pick(f"{t}.p[{k} & 3]", f"{t}.p[min({k}, 3)]", f"{t}.p[{k} % 3]", f"{t}.p[{at} & 3]")
        number = self.pick(f"{t}.row[{k} & 7]", f"{t}.back[{at} & 7]", f"{t}.first[{k} & 3]", f"{t}.first[{at} & 1]", k,
                           f"{t}.row[{at} & 3] * {self.thread()}")
        form = self.rng.randrange(4)
        if form == 0:
            self.say(f"if ({k} < 4) {{ {self.touch(f'{t}.p[{k}]', number)} }}")
        elif form == 1:
            i = self.new("i")
            self.say(f"for (int {i} = {number}; {i} < {self.limit()}; ++{i}) {{ {self.touch(p, i)} }}")
        else:
            self.say(self.touch(p if form == 2 else self.pointer(), number))

    def make_body(self):
        self.in_branch = False
        self.say(f"int acc = {self.pick('1', self.thread())};")
        if self.chance(30):
            self.shared = True
            self.say("__shared__ int s[64];")
            self.say(f"s[threadIdx.x & 63] = {self.number(1)};")
            self.say("__syncthreads();")
        if self.chance(30):
            i = self.new("i")
            self.say(f"int {i} = blockIdx.x * blockDim.x + threadIdx.x;")
            self.say(f"if (!({self.guard(i)})) return;")
            self.counts.append(i)
        for _ in range(self.rng.randint(2, 6)):
            self.statement()
        self.say(f"{self.pointers[0]}[threadIdx.x] = acc;")

    def text(self):
        head = f'extern "C" __global__ void {self.name}({", ".join(self.params)}) {{'
        return "\n".join([head] + self.lines + ["}"])

    def layout(self):
        return f"{self.name} {self.offset} {','.join(map(str, self.words))} extreme"


def write(folder, seed, count):
    """kernels.cu and kernels.txt, as make_kernels.write does."""
    kernels = [Kernel(random.Random(each), f"x{each}") for each in range(seed, seed + count)]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "kernels.cu"), "w") as file:
        file.write(PREFACE + "\n" + "\n\n".join(kernel.text() for kernel in kernels) + "\n")
    with open(os.path.join(folder, "kernels.txt"), "w") as file:
        file.write("".join(kernel.layout() + "\n" for kernel in kernels))
