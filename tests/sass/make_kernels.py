#!/usr/bin/env python3
"""Writes random CUDA C++ kernels, and a table of what their parameters are.

What they do with pointers is what compilers meet: arithmetic, choices, loops, tables in parameters, structures by
value, arrays in local and shared memory, calls that are not inlined, atomics, casts to numbers and back. Each kernel
ends for any arguments. The same seed gives the same text.
"""

import argparse
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import async_statements  # noqa: E402

ACCESSED = ["int", "int", "int", "int", "float", "unsigned", "short", "unsigned char"]
WIDE = [("long long", ""), ("double", ""), ("int2", ".x"), ("int4", ".y"), ("float4", ".z")]

PREFACE = r"""
struct Pair { int* first; int* second; };
__device__ int g_array[256];
__constant__ int c_array[256];

template <int kFactor>
__device__ __noinline__ int read_at(const int* p, int i) { return p[i] * kFactor + p[i + kFactor]; }
__device__ __noinline__ void write_at(int* p, int i, int value) { p[i] = value; if (value & 1) p[i + 1] = i; }
__device__ __noinline__ int* pick(int* a, int* b, int which) { return which > 2 ? a : b + which; }
__device__ __noinline__ int* walk(int* p, int n) { return n <= 0 ? p : walk(p + n, (n & 7) - 1) + 1; }
__device__ __noinline__ void swap(Pair& pair, int k) {
  if (k & 1) { int* t = pair.first; pair.first = pair.second; pair.second = t; }
}
__device__ __noinline__ int is_odd(int x) { return (x * 7 + 3) & 1; }
__device__ __noinline__ int sum_of(Pair pair, int i) { return pair.first[i] + pair.second[i]; }
__device__ __noinline__ long long far(int a, int b) { return ((long long)a * b) & 0xfff; }
"""


class Kernel:
    def __init__(self, rng, name, bounded, level):
        self.rng, self.name, self.bounded, self.level = rng, name, bounded, level
        self.maps = []
        self.structs, self.params, self.words, self.offset = [], [], [], 0
        self.ints, self.longs, self.bases, self.pointers, self.tables = [], [], [], [], []
        self.lines, self.indent, self.names, self.depth = [], 1, 0, 0
        self.arrays, self.pointer_arrays, self.shared, self.shared_pointers = [], [], [], []
        self.writable_ints, self.writable_pointers = [], []
        self.make_params()
        self.make_body()

    def chance(self, percent):
        return self.rng.randrange(100) < percent

    def new(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    # ---- parameters ----

    def place(self, size, align, words=()):
        self.offset = (self.offset + align - 1) // align * align
        self.words += [self.offset + word for word in words]
        self.offset += size

    def make_params(self):
        for _ in range(self.rng.randint(2, 6)):
            self.make_param(self.rng.choice(["pointer"] * 5 + ["int"] * 3 + ["long", "short", "struct", "struct", "table", "nested"]))
        for _ in range(self.rng.randint(0, 3) if self.level >= 90 else 0):
            self.make_param("map")
        if not self.pointers:
            self.make_param("pointer")
        if not self.ints:
            self.make_param("int")

    def make_param(self, kind):
        name = self.new("p")
        if kind == "pointer":
            restrict = " __restrict__" if self.chance(10) else ""
            self.params.append(f"int*{restrict} {name}")
            self.place(8, 8, [0])
            self.pointers.append(name)
            self.bases.append(name)
        elif kind == "int":
            self.params.append(f"int {name}")
            self.place(4, 4)
            self.ints.append(name)
        elif kind == "long":
            self.params.append(f"long long {name}")
            self.place(8, 8)
            self.longs.append(name)
        elif kind == "short":
            self.params.append(f"short {name}")
            self.place(2, 2)
            self.ints.append(name)
        elif kind == "map":
            self.params.append(f"const __grid_constant__ Map {name}")
            self.place(128, 64, [0])
            self.maps.append(name)
        elif kind == "struct":
            struct = f"S_{self.name}_{name}"
            members, words, at = [], [], 0
            for i in range(self.rng.randint(2, 5)):
                pointer = self.chance(55)
                size = 8 if pointer else 4
                at = (at + size - 1) // size * size
                members.append(f"int{'*' if pointer else ''} m{i};")
                (self.pointers if pointer else self.ints).append(f"{name}.m{i}")
                if pointer:
                    words.append(at)
                    self.bases.append(f"{name}.m{i}")
                at += size
            align = 8 if words else 4
            self.structs.append(f"struct {struct} {{ {' '.join(members)} }};")
            self.params.append(f"{struct} {name}")
            self.place((at + align - 1) // align * align, align, words)
        elif kind == "table":
            struct, count = f"S_{self.name}_{name}", self.rng.choice([2, 4, 8])
            self.structs.append(f"struct {struct} {{ int* p[{count}]; int n[{count}]; }};")
            self.params.append(f"{'const __grid_constant__ ' if self.chance(40) else ''}{struct} {name}")
            self.place(count * 12, 8, [8 * i for i in range(count)])
            self.tables.append((name, count))
            self.pointers.append(f"{name}.p[{count - 1}]")
            self.ints.append(f"{name}.n[0]")
        else:
            struct = f"S_{self.name}_{name}"
            self.structs.append(f"struct {struct} {{ Pair a[2]; short s[3]; Pair b; }};")
            self.params.append(f"{struct} {name}")
            self.place(56, 8, [0, 8, 16, 24, 40, 48])
            self.pointers += [f"{name}.a[1].first", f"{name}.b.second"]
            self.tables.append((f"{name}.a", 0))

    # ---- expressions ----

    def number(self, depth=0):
        if depth > 2 or self.chance(35):
            return self.rng.choice(
                self.ints + ["(int)threadIdx.x", "(int)threadIdx.x", "(int)blockIdx.x", str(self.rng.randint(-3, 40))])
        a = self.number(depth + 1)
        kind = self.rng.randrange(20)
        if kind < 8:
            return f"({a} {self.rng.choice(['+', '-', '*', '&', '|', '^', '+'])} {self.number(depth + 1)})"
        if kind == 8:
            return f"({a} {self.rng.choice(['<<', '>>'])} {self.rng.randint(1, 6)})"
        if kind == 9:
            return f"({a} {self.rng.choice('/%')} {self.rng.choice(['7', '10', '(' + self.number(depth + 1) + ' | 1)'])})"
        if kind == 10:
            return f"({self.condition(depth + 1)} ? {a} : {self.number(depth + 1)})"
        if kind == 11:
            return f"{self.rng.choice(['min', 'max'])}({a}, {self.number(depth + 1)})"
        if kind == 12:
            return f"{self.rng.choice(['__popc', '__clz', 'abs', '(int)__brev', '__ffs'])}({a})"
        if kind == 13 and self.arrays:
            return f"{self.rng.choice(self.arrays)}[{a} & 7]"
        if kind == 14 and self.longs:
            return f"(int)({self.rng.choice(self.longs)} >> {self.rng.randint(0, 9)})"
        if kind == 15 and depth == 0:
            return f"read_at<{self.rng.choice([1, 3])}>({self.pointer(1)}, {self.index(1)})"
        if kind == 16:
            return f"(int)(unsigned char)({a})"
        if kind == 17 and depth == 0:
            return f"is_odd({a})"
        if kind == 18:
            return f"(int)((float){a} * 0.5f)"
        return self.load(depth + 1)

    def index(self, depth=0):
        inner = self.number(depth + 1)
        if self.bounded:
            return f"({inner} & 255)"
        if self.chance(15):
            return f"((long long){inner} * 3)"
        if self.chance(10):
            return f"(far({inner}, {self.rng.choice(self.ints)}))"
        return inner

    def condition(self, depth=0):
        kind = self.rng.randrange(12)
        if kind < 7:
            return f"({self.number(depth + 1)} {self.rng.choice(['<', '>', '==', '!=', '<=', '>='])} {self.number(depth + 1)})"
        if kind == 7:
            return f"({self.condition(depth + 1)} {self.rng.choice(['&&', '||'])} {self.condition(depth + 1)})" if depth < 2 else "(threadIdx.x < 3)"
        if kind == 8 and self.bases:
            return f"({self.rng.choice(self.bases)} != nullptr)"
        if kind == 9 and self.longs:
            return f"({self.rng.choice(self.longs)} > {self.rng.randint(0, 20)})"
        if kind == 10:
            return f"(is_odd({self.rng.choice(self.ints)}) != 0)"
        return f"({self.rng.choice(self.ints)} > {self.rng.randint(0, 8)})"

    def pointer(self, depth=0):
        known = self.rng.choice(self.pointers)
        if depth > 2 or self.chance(45):
            return known
        kind = self.rng.randrange(15)
        if kind < 3:
            return f"({self.condition(1)} ? {known} : {self.pointer(depth + 1)})"
        if kind == 3 and not self.bounded:
            return f"({self.pointer(depth + 1)} + {self.index(1)})"
        if kind == 4 and self.tables:
            name, count = self.rng.choice(self.tables)
            if count == 0:
                return f"{name}[{self.number(1)} & 1].{self.rng.choice(['first', 'second'])}"
            return f"{name}.p[{self.number(1)} & {count - 1}]"
        if kind == 5 and self.pointer_arrays:
            return f"{self.rng.choice(self.pointer_arrays)}[{self.number(1)} & 3]"
        if kind == 6 and self.shared_pointers:
            return f"{self.rng.choice(self.shared_pointers)}[{self.number(1)} & 31]"
        if kind == 7:
            return f"(int*)((unsigned long long){known} + 4 * (unsigned long long)({self.number(1)} & 255))"
        if kind == 8:
            return f"pick({known}, {self.pointer(depth + 1)}, {self.number(1)} & 7)"
        if kind == 9 and self.chance(10):
            return f"walk({known}, {self.number(1)} & 7)"
        if kind == 10:
            return f"(int*)((unsigned long long){known} & ~15ull)"
        if kind == 11 and self.depth == 0:
            return f"(int*)__shfl_sync(__activemask(), (unsigned long long){self.pointer(depth + 1)}, {self.rng.randint(0, 3)})"
        if kind == 12:
            other = self.rng.choice(self.bases) if self.bases else known
            return f"({other} + (({known} + {self.rng.randint(1, 9)}) - {known}))"
        return f"({known} + {self.rng.randint(0, 12)})"

    def load(self, depth=0):
        if self.bases and self.chance(15):
            kind, member = self.rng.choice(WIDE)
            return f"(int)((({kind}*){self.rng.choice(self.bases)})[{self.index(depth)}]{member})"
        if self.shared and self.chance(15):
            return f"{self.rng.choice(self.shared)}[{self.number(depth)} & 63]"
        if self.chance(5):
            return f"{self.rng.choice(['g_array', 'c_array'])}[{self.number(depth)} & 255]"
        kind = self.rng.choice(ACCESSED)
        cast = "" if kind == "int" else f"(int)*({kind}*)&"
        ldg = "__ldg(&" if cast == "" and self.chance(8) else ""
        return f"{cast}{ldg}({self.pointer(depth)})[{self.index(depth)}]{')' if ldg else ''}"

    # ---- statements ----

    def say(self, text):
        self.lines.append("  " * self.indent + text)

    def block(self, head, statements):
        kept = [list(each) for each in (self.ints, self.pointers, self.arrays, self.pointer_arrays, self.writable_ints, self.writable_pointers)]
        self.say(head + " {")
        self.indent += 1
        self.depth += 1
        for _ in range(statements):
            self.statement()
        self.depth -= 1
        self.indent -= 1
        self.say("}")
        self.ints, self.pointers, self.arrays, self.pointer_arrays, self.writable_ints, self.writable_pointers = kept

    def statement(self):
        if self.level >= 80 and self.chance(30):
            return async_statements.statement(self)
        kind = self.rng.randrange(24)
        nests = self.depth < 2
        if kind < 5:
            to = self.rng.choice(ACCESSED[:6])
            cast = "" if to == "int" else f"*({to}*)&"
            self.say(f"{cast}({self.pointer()})[{self.index()}] = {self.number()};")
        elif kind == 5:
            name = self.new("v")
            self.say(f"int {name} = {self.number()};")
            self.ints.append(name)
            self.writable_ints.append(name)
        elif kind == 6 or kind == 7:
            name = self.new("q")
            self.say(f"int* {name} = {self.pointer()};")
            self.pointers.append(name)
            self.writable_pointers.append(name)
        elif kind == 8 and self.writable_ints:
            self.say(f"{self.rng.choice(self.writable_ints)} {self.rng.choice(['=', '+=', '^='])} {self.number()};")
        elif kind == 9 and self.writable_pointers:
            guard = f"if ({self.condition()}) " if self.chance(60) else ""
            self.say(f"{guard}{self.rng.choice(self.writable_pointers)} = {self.pointer()};")
        elif kind == 10 and nests:
            self.block(f"if ({self.condition()})", self.rng.randint(1, 3))
            if self.chance(40):
                self.block("else", self.rng.randint(1, 2))
        elif kind == 11 and nests:
            name = self.new("i")
            limit = f"({self.number()} & 7)" if self.chance(60) else str(self.rng.randint(2, 6))
            self.ints.append(name)
            unroll = "#pragma unroll 1\n" if self.chance(60) else ""
            self.lines.append(unroll + "  " * self.indent + f"for (int {name} = 0; {name} < {limit}; ++{name}) {{")
            self.lines.append("  " * self.indent + "  ")
            self.ints.remove(name)
            self.indent += 1
            self.say("(void)0;")
            self.indent -= 1
            self.ints.append(name)
            self.block("", self.rng.randint(1, 3))
            self.ints.remove(name)
            self.say("}")
        elif kind == 12 and nests and len(self.pointers) > 1:  # two that change places, step by step
            a, b, i = self.new("q"), self.new("q"), self.new("i")
            self.say(f"int *{a} = {self.pointer()}, *{b} = {self.pointer()};")
            self.say(f"for (int {i} = 0; {i} < ({self.number()} & 3); ++{i}) {{")
            self.say(f"  {a}[{i}] = {b}[{i} + 1] + {i};")
            self.say(f"  int* t = {a}; {a} = {b}; {b} = t;")
            if self.chance(50) and not self.bounded:
                self.say(f"  {a} += {self.number(2)} & 15;")
            self.say("}")
            self.pointers += [a, b]
        elif kind == 13:
            name = self.new("a")
            self.say(f"int {name}[8];")
            self.say(f"for (int i = 0; i < 8; ++i) {name}[i] = {self.number()} + i;")
            self.arrays.append(name)
        elif kind == 14:
            name = self.new("r")
            self.say(f"int* {name}[4] = {{{', '.join(self.pointer() for _ in range(4))}}};")
            if self.chance(40):
                self.say(f"{name}[{self.number()} & 3] = {self.pointer()};")
            self.pointer_arrays.append(name)
        elif kind == 15 and self.arrays:
            self.say(f"{self.rng.choice(self.arrays)}[{self.number()} & 7] = {self.number()};")
        elif kind == 16 and self.shared and self.depth == 0:
            self.say(f"{self.rng.choice(self.shared)}[threadIdx.x & 63] = {self.number()};")
            self.say("__syncthreads();")
        elif kind == 17:
            operation = self.rng.choice(["atomicAdd", "atomicMax", "atomicExch", "atomicOr", "atomicMin"])
            self.say(f"{operation}(&({self.pointer()})[{self.index()}], {self.number()});")
        elif kind == 18 and self.chance(25):
            self.say(f"g_array[{self.number()} & 255] = {self.number()};")
        elif kind == 18:
            name = self.new("v")
            self.say(f"int {name} = atomicCAS(&({self.pointer()})[{self.index()}], {self.number(1)}, {self.number(1)});")
            self.ints.append(name)
        elif kind == 19:
            self.say(f"write_at({self.pointer()}, {self.index()}, {self.number()});")
        elif kind == 20:
            pair = self.new("pair")
            self.say(f"Pair {pair}{{{self.pointer()}, {self.pointer()}}};")
            self.say(f"swap({pair}, {self.number()});")
            self.pointers += [f"{pair}.first", f"{pair}.second"]
            if self.chance(50):
                self.say(f"({self.pointer()})[{self.index()}] = sum_of({pair}, {self.index()});")
        elif kind == 21 and nests:
            self.say(f"switch ({self.number()} & 7) {{")
            for case in range(self.rng.choice([3, 8])):
                self.say(f"case {case}: {{")
                self.block("", 1)
                if self.chance(80):
                    self.say("break;")
                self.say("}")
            self.say("}")
        elif kind == 22 and self.bases and self.chance(60):
            to, member = self.rng.choice(WIDE)
            value = f"{{{', '.join([self.number(1)] * int(to[-1]))}}}" if member else f"({to})({self.number()})"
            if to == "float4":
                value = f"make_float4({', '.join(['(float)' + self.number(1)] * 4)})"
            elif member:
                value = f"make_{to}({', '.join([self.number(1)] * int(to[-1]))})"
            self.say(f"(({to}*){self.rng.choice(self.bases)})[{self.index()}] = {value};")
        elif kind == 23 and self.chance(20) and self.bases:
            # A pointer that others will follow.
            self.say(f"*(int**){self.rng.choice(self.bases)} = {self.pointer(1)};")
        else:
            # Under one condition put there, under one like it used.
            name, value = self.new("q"), self.new("v")
            self.say(f"int {value} = {self.number()};")
            self.say(f"int* {name} = {self.pointer(2)};")
            self.say(f"if ({value} > 3) {name} = {self.pointer(2)};")
            self.say(f"({self.pointer(2)})[{self.index(2)}] = {value};")
            again = f"{value} > 3" if self.chance(60) else f"{value} > 4"
            self.say(f"if ({again}) {name}[{self.index(2)}] = 1;")
            self.ints.append(value)

    def make_body(self):
        if self.level >= 80:
            async_statements.declare(self)
        if self.chance(35):
            name = self.new("s")
            self.say(f"__shared__ int {name}[64];")
            self.say(f"{name}[threadIdx.x & 63] = {self.number(1)};")
            self.say("__syncthreads();")
            self.shared.append(name)
        if self.chance(15 if self.level < 80 else 45):
            name = self.new("s")
            self.say(f"__shared__ int* {name}[32];")
            self.say(f"for (int i = threadIdx.x; i < 32; i += blockDim.x) {name}[i] = {self.pointer(1)};")
            self.say("__syncthreads();")
            self.shared_pointers.append(name)
        if self.chance(25):
            self.say(f"if ({self.condition()}) return;") if not (self.shared or self.shared_pointers) else None
        for _ in range(self.rng.randint(2, 8)):
            self.statement()
        self.say(f"({self.pointer(1)})[{self.index(1)}] = {self.number(1)};")

    def text(self):
        head = f'extern "C" __global__ void {self.name}({", ".join(self.params)}) {{'
        return "\n".join(self.structs + [head] + self.lines + ["}"])

    def layout(self):
        return f"{self.name} {self.offset} {','.join(map(str, self.words))} {'bounded' if self.bounded else 'free'}"


def write(folder, seed, count, level=75):
    """kernels.cu, and kernels.txt: of each kernel its name, the bytes of its parameters, the words that are pointers.
    `level`: of which virtual architecture they take what it has."""
    kernels = []
    for each in range(seed, seed + count):
        rng = random.Random(each)
        kernels.append(Kernel(rng, f"k{each}", rng.randrange(2) == 0, level))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "kernels.cu"), "w") as file:
        file.write(PREFACE + async_statements.preface(level) + "\n" + "\n\n".join(kernel.text() for kernel in kernels) + "\n")
    with open(os.path.join(folder, "kernels.txt"), "w") as file:
        file.write("".join(kernel.layout() + "\n" for kernel in kernels))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="where kernels.cu and kernels.txt go")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the first kernel (default 1)")
    parser.add_argument("--level", type=int, default=75, metavar="N", help="75, 80, 90, 91 for 90a, or 100 (default 75)")
    parser.add_argument("--count", type=int, default=50, metavar="N", help="how many kernels (default 50)")
    arguments = parser.parse_args()
    write(arguments.folder, arguments.seed, arguments.count, arguments.level)


if __name__ == "__main__":
    main()
