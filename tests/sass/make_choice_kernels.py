#!/usr/bin/env python3
"""Writes random CUDA C++ kernels that may follow an address from memory, or a number that is one, by what their parameters say.

A mode, a flag, a pointer that is null, or the launch's shape chooses between a pointer with a stride and one out of an
array of pointers: as branches, as predicates, in loops and in functions. The same seed gives the same text.
"""

import os
import random

import make_index_kernels

PREFACE = make_index_kernels.PREFACE + r"""
__device__ __noinline__ int* picked(int mode, int** array, int* p, int i) { return mode == 2 ? array[i & 7] : p + i; }
__device__ __noinline__ int* either(bool which, int** array, int* p) { if (which) return array[threadIdx.x & 3]; return p; }
__device__ __noinline__ void put_in(int** array, int i) { if (array) array[i & 15][2] = i; }
__device__ __forceinline__ void copy_if(bool reads, int4* to, const int* from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\ncp.async.wait_all;"
               ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"((u64)from & ~15ull), "r"(reads ? 16 : 0) : "memory");
#else
  *to = reads ? *(const int4*)((u64)from & ~15ull) : make_int4(0, 0, 0, 0);
#endif
}
struct Mode { short kind; unsigned char batched, flags; };
struct Table { int* at[12]; };
"""


class Kernel(make_index_kernels.Kernel):
    def make_params(self):
        kinds = ["pointer"] * self.rng.randint(2, 5) + ["array"] * self.rng.randint(1, 3) + ["int"] * self.rng.randint(2, 3)
        kinds += ["unsigned", "long"] + [each for each in ("mode", "half", "short", "short", "long", "table") if self.chance(50)]
        self.rng.shuffle(kinds)
        self.divider = self.offsets = None
        self.arrays, self.modes, self.halves, self.tables, self.kinds = [], [], [], [], {"arrays": [], "halves": []}
        for kind in kinds:
            if kind == "pointer":
                self.param("int*", 8, 8, self.pointers, [0])
            elif kind == "array":
                self.param("int**", 8, 8, self.arrays, [0])
                self.kinds["arrays"].append(self.offset - 8)
            elif kind == "half":
                self.param("u64", 8, 8, self.halves)
                self.kinds["halves"].append(self.offset - 8)
            elif kind == "table":
                self.param("const __grid_constant__ Table", 96, 8, self.tables, range(0, 96, 8))
            elif kind == "int":
                self.param("int", 4, 4, self.ints)
            elif kind == "unsigned":
                self.param("unsigned", 4, 4, self.unsigneds)
            elif kind == "long":
                self.param("i64", 8, 8, self.longs)
            elif kind == "short":
                self.param("short", 2, 2, self.shorts)
            else:
                self.param("Mode", 4, 2, self.modes)
        self.unused = self.pointers[1:]

    # ---- what decides ----

    def small(self):
        return str(self.rng.randint(0, 3))

    def mode(self):
        choices = [self.rng.choice(self.ints), self.rng.choice(self.ints), f"(int){self.rng.choice(self.unsigneds)}"]
        if self.modes:
            mode = self.rng.choice(self.modes)
            choices += [f"{mode}.kind", f"{mode}.batched", f"({mode}.flags & {self.pick('1', '2', '3')})"]
        return self.pick(*choices, *self.shorts, *self.shorts)

    def decides(self, depth=0):
        if depth < 2 and self.chance(30):
            return f"({self.decides(depth + 1)} {self.pick('&&', '||', '&', '|', '^', '!=')} {self.decides(depth + 1)})"
        m, a = self.mode(), self.rng.choice(self.arrays)
        kind = self.rng.randrange(20)
        if kind < 9:
            return f"({m} {self.pick('==', '==', '==', '!=', '!=', '!=', '<', '>', '<=', '>=')} {self.small()})"
        if kind < 13:
            return self.pick(f"({a} != nullptr)", f"!{a}", f"(bool){a}")
        if kind == 13:
            return f"({m} {self.pick('!=', '==', '>')} {self.mode()})"
        if kind < 16:
            return f"(({m} & {self.pick('1', '2', '4')}) {self.pick('!=', '==')} 0)"
        if kind == 16:
            return f"((unsigned){m} {self.pick('<', '>=')} {self.small()}u)"
        if kind == 17:
            return f"({self.rng.choice(self.longs)} {self.pick('==', '>', '<', '!=')} {self.small()})"
        if kind == 18:
            return self.pick("(gridDim.x > 1)", "(blockDim.x < 9)", "(blockDim.x > 32)", "((int)threadIdx.x < " + m + ")")
        return self.pick(f"({self.pointers[0]}[{self.small()}] == 0)", f"({m} * 2 + 1 == 5)", f"(min({m}, 2) == 2)",
                         f"({m} > (int)threadIdx.x && {m} < 3)", f"({self.condition(1)})")

    def element(self, i=None):
        a, i = self.rng.choice(self.arrays), i or self.thread()
        return self.pick(f"{a}[({i}) & 7]", f"{a}[({i}) & 7]", f"({a}[blockIdx.x] + {self.small()})", f"{a}[{self.small()}]")

    def doubtful(self):
        if self.halves and self.chance(30):
            return f"(int*)({self.rng.choice(self.halves)} * 2)"
        return self.element()

    def plain(self):
        p = self.pointer()
        divided = f"((i64){self.mode()} - {self.pick('5', '3', f'{self.rng.choice(self.longs)} * blockIdx.x')})"
        return self.pick(p, f"{p} + {self.thread()}", f"{p} + {divided} / {self.pick('4', '8', '64')}", f"{p} + blockIdx.x * {self.rng.choice(self.longs)}", f"{p} + {self.mode()}")

    # ---- statements ----

    def statement(self):
        maker = self.rng.choice([self.branched, self.branched, self.selected, self.selected, self.switched, self.overwritten,
                                 self.within, self.looped, self.by_function, self.guarded_load, self.kept,
                                 self.loaded_before, self.called_twice, self.spilled, self.spilled, self.spilled, self.spilled_pointer,
                                 self.by_index, self.by_index, self.flagged, self.flagged, self.flagged,
                                 self.stored_again, self.stored_again, self.copied, self.copied])
        self.in_branch = True
        self.say("{")
        self.indent += 1
        maker()
        self.indent -= 1
        self.say("}")

    def uses(self, q):
        for _ in range(self.rng.randint(1, 2)):
            self.say(self.touch(q, self.pick("0", "(int)threadIdx.x", self.small(), self.thread())))

    def branched(self):
        q = self.new("q")
        self.say(f"int* {q};")
        self.say(f"if ({self.decides()}) {q} = {self.doubtful()}; else {q} = {self.plain()};")
        if self.chance(30):
            self.say(f"if ({self.decides()}) acc += 3;")
        if self.chance(30):
            self.say("__syncthreads();" if self.chance(20) else "acc ^= 1;")
        self.uses(q)

    def selected(self):
        q = self.new("q")
        first, second = self.doubtful(), self.plain()
        if self.chance(50):
            first, second = second, first
        self.say(f"int* {q} = {self.decides()} ? {first} : {second};")
        self.uses(q)

    def switched(self):
        q = self.new("q")
        self.say(f"int* {q} = {self.plain()};")
        self.say(f"switch ({self.mode()}) {{")
        for i in range(self.rng.randint(2, 6)):
            what = self.doubtful() if self.chance(40) else self.plain()
            self.say(f"  case {i}: {q} = {what}; {self.pick('break;', 'break;', 'acc += 1;')}")
        if self.chance(40):
            self.say(f"  default: {q} = {self.pick(self.plain(), self.doubtful())};")
        self.say("}")
        self.uses(q)

    def overwritten(self):
        q = self.new("q")
        self.say(f"int* {q} = {self.pick(self.plain(), self.plain(), 'nullptr')};")
        for _ in range(self.rng.randint(1, 3)):
            self.say(f"if ({self.decides()}) {q} = {self.pick(self.doubtful(), self.doubtful(), self.plain())};")
        self.say((f"if ({q}) " if self.chance(30) else f"if ({self.decides()}) " if self.chance(20) else "") + "{")
        self.uses(q)
        self.say("}")

    def within(self):
        q = self.new("q")
        self.say(f"int* {q} = {self.plain()};")
        self.say(f"if ({self.decides()}) {{")
        self.say(f"  if ({self.decides()}) {q} = {self.doubtful()}; else {q} = {self.pick(self.plain(), self.doubtful())};")
        self.say(f"}} else if ({self.decides()}) {q} = {self.plain()};")
        self.uses(q)

    def wide_end(self):
        """Not far: one such loop would make more accesses than all other kernels, and few of them to objects."""
        return f"min({super().wide_end()}, (i64)8)"

    def looped(self):
        q, i = self.new("q"), self.new("i")
        head, tail = self.loop(i)
        if self.chance(50):
            self.say(head)
            self.say(f"  int* {q} = {self.decides()} ? {self.element(i)} : {self.plain()};")
            self.say("  " + self.touch(q, self.pick("0", "1", "(int)threadIdx.x")))
            self.say(tail)
            return
        self.say(f"int* {q} = {self.plain()};")
        self.say(head)
        self.say("  " + self.touch(q, self.pick("0", "1")))
        self.say(f"  if ({self.decides()}) {q} = {self.pick(self.element(i), f'{q} + 1', self.plain())};")
        self.say(tail)
        if self.chance(50):
            self.uses(q)

    def by_function(self):
        kind = self.rng.randrange(3)
        a = self.rng.choice(self.arrays)
        if kind == 0:
            self.say(self.touch(f"picked({self.mode()}, {a}, {self.pointer()}, {self.thread()})", "1"))
        elif kind == 1:
            self.say(self.touch(f"either({self.decides()}, {a}, {self.pointer()})", "(int)threadIdx.x"))
        else:
            self.say(f"if ({self.decides()}) put_in({a}, {self.thread()}); else acc += 1;")

    def guarded_load(self):
        """What is loaded serves as a number elsewhere."""
        a = self.rng.choice(self.arrays)
        self.say(f"if ({self.decides()}) {{ {self.touch(self.element(), '0')} }}")
        if self.chance(40):
            self.say(f"if ({a}) acc += (int)(i64){a}[0];")

    def copied(self):
        """To shared memory, or zeros are: by a predicate that the copy has beside the one under which it runs."""
        s, q = self.new("s"), self.new("q")
        self.say(f"__shared__ int4 {s}[1024];")
        self.say(f"int* {q} = {self.pick(self.doubtful(), self.doubtful(), self.plain())};")
        guard = f"if ({self.decides()}) " if self.chance(30) else ""
        self.say(f"{guard}copy_if({self.decides()}, &{s}[threadIdx.x & 1023], {q});")
        self.say(f"acc += {s}[threadIdx.x & 1023].x;")

    def loaded_before(self):
        """An element that is loaded in any case."""
        e, q = self.new("e"), self.new("q")
        self.say(f"int* {e} = {self.element()}; acc += (int)(i64){e} & 1;")
        first, second = (e, self.plain()) if self.chance(50) else (self.plain(), e)
        self.say(f"int* {q} = {self.decides()} ? {first} : {second};")
        self.uses(q)

    def called_twice(self):
        for _ in range(2):
            self.say(f"if ({self.decides()}) put_in({self.rng.choice(self.arrays)}, {self.thread()});")

    def kept(self):
        """Pointers that lie in local or in shared memory."""
        q, k = self.new("q"), self.new("k")
        self.say(f"int* {q}[2];")
        self.say(f"{q}[0] = {self.plain()}; {q}[1] = {self.decides()} ? {self.doubtful()} : {self.plain()};")
        self.say(f"int {k} = {self.mode()} & 1;")
        self.say(self.touch(f"{q}[{self.pick(k, '0', '1')}]", "0"))

    def spilled(self):
        """What decides lies in local memory; it is stored anew under a condition, in a loop, by a byte, by a pointer."""
        k, q, i = self.new("k"), self.new("q"), self.new("i")
        how = self.pick(0, 0, 1, 2, 3, 4, 5, 5, 5, 6, 6, 6, 7, 7, 8, 9)
        is_large = how in (0, 5, 6, 7) and self.chance(80)  # what is not known to be stored, and nothing else
        # That an element is taken by an index keeps them all in memory.
        self.say(f"volatile int {k}[40]{'' if how == 0 else f' = {{{self.mode()}, {self.small()}, {self.mode()}, 1}}'};")
        self.say(f"if ({self.rng.choice(self.ints)} == 77) acc += {k}[threadIdx.x & 31];")
        if how in (0, 1, 2, 3):
            self.say(f"if ({self.decides()}) {k}[0] = {self.mode()};")
        elif how == 4:
            head, tail = self.loop(i)
            self.say(head)
            self.say(f"  {k}[0] = {k}[0] + 1;")
            self.say(tail)
        elif how == 5:
            self.say(f"((volatile unsigned char*){k})[{1 if is_large else self.pick('0', '1')}] = {1 if is_large else self.mode()};")
        elif how == 6:
            self.say(f"*({self.decides()} ? (volatile int*){k} : (volatile int*){self.pointer()}) = {self.mode()} + 100;")
        elif how == 7:
            self.say(f"{k}[{self.mode()} & 1] = {self.mode()}{' + 100' if is_large else ''};")
        self.say(f"int* {q} = {self.plain()};")
        holds = f"({k}[0] & ~3) != 0" if is_large else f"{k}[0] {self.pick('==', '!=', '<', '>')} {self.small()}"
        what = self.element() if is_large else self.pick(self.doubtful(), self.doubtful(), self.plain())
        self.say(f"if ({holds}) {q} = {what};")
        self.uses(q)

    def spilled_pointer(self):
        q, p = self.new("q"), self.new("p")
        a = self.rng.choice(self.arrays)
        self.say(f"int** volatile {q}[40] = {{{self.decides()} ? {a} : nullptr, {a}}};")
        self.say(f"if ({self.rng.choice(self.ints)} == 77) acc += {q}[threadIdx.x & 31] == nullptr;")
        if self.chance(40):
            self.say(f"if ({self.decides()}) {q}[0] = {self.pick('nullptr', self.rng.choice(self.arrays))};")
        self.say(f"int** {p} = {q}[0];")
        self.say(f"if ({p}) {{ {self.touch(f'{p}[{self.small()}]', '0')} }}")
        if self.chance(50):
            self.say(f"int* volatile {q}k[40] = {{{self.plain()}, {self.pointer()}}};")
            self.say(f"if ({self.rng.choice(self.ints)} == 78) {self.touch(f'{q}k[threadIdx.x & 31]', '0')}")
            self.say(self.touch(f"{q}k[0]", self.pick("0", "(int)threadIdx.x")))

    def flagged(self):
        """Conditions that are bits of one number, among others, as a compiler keeps predicates."""
        f, q, names = self.new("f"), self.new("q"), []
        self.say(f"unsigned {f} = {self.pick('0', 'threadIdx.x', self.rng.choice(self.ints), '~0u')};")
        for bit in self.rng.sample(range(12), self.rng.randint(1, 5)):
            name = self.new("b")
            names.append((name, bit))
            self.say(f"bool {name} = {self.pick(self.decides(), self.decides(), f'(threadIdx.x & {bit + 1}) != 0')};")
            clear = self.pick(f"and.b32 %0, %0, {~(1 << bit) & 0xffffffff};", f"and.b32 %0, %0, {~(1 << bit) & 0xffffffff};",
                              "mov.b32 %0, %0;")
            how = self.pick(f"@p or.b32 %0, %0, {1 << bit};", f"@p or.b32 %0, %0, {1 << bit};", f"@!p or.b32 %0, %0, {1 << bit};",
                            f".reg .b32 t; selp.b32 t, {1 << bit}, 0, p; or.b32 %0, %0, t;")
            within = self.chance(30)
            if within:
                self.say(f"if ({self.decides()}) {{")
                self.say(self.touch(self.pointer(), self.pick("0", "(int)threadIdx.x", self.thread())))
            self.say(f'asm volatile("{{ .reg .pred p; {clear} setp.ne.s32 p, %1, 0; {how} }}" : "+r"({f}) : "r"((int){name}));')
            if within:
                self.say("}")
            if self.chance(15):
                self.say("__syncthreads();" if self.chance(20) else f"acc += {f} & 1;")
        name, bit = self.rng.choice(names)
        first, second = self.doubtful(), self.plain()
        kind = self.rng.randrange(3)
        if kind == 0:
            self.say(f"int* {q} = {self.pick(self.plain(), 'nullptr')};")
            self.say(f"if ({name}) {q} = {self.pick(first, second, second)}; else {q} = {self.pick(first, first, second)};")
        elif kind == 1:
            self.say(f"int* {q} = {name} ? {second} : {first};")
        else:
            self.say(f"int* {q} = {second};")
            self.say(f"if (!{name}) {q} = {first};")
        if self.chance(15):
            bit = self.rng.choice(names)[1]
        mask = (1 << bit) | (1 << self.rng.choice(names)[1] if self.chance(30) else 0)
        holds = self.pick(f"({f} & {mask}) != 0", f"({f} & {mask}) != 0", f"({f} & {mask}) != 0", f"({f} & {mask}) == 0", f"({f} >> {bit} & 1)")
        self.say(f"if ({holds}) {{")
        self.uses(q)
        self.say("}")

    def stored_again(self):
        """A word of local memory that holds one thing after the other, or either of two."""
        k, q = self.new("k"), self.new("q")
        is_filled = self.chance(75)
        self.say(f"int* volatile {k}[40]{f' = {{{self.plain()}, {self.pointer()}}}' if is_filled else ''};")
        self.say(f"if ({self.rng.choice(self.ints)} == 77) acc += {k}[threadIdx.x & 31] == nullptr;")
        for _ in range(self.rng.randint(1, 3)):
            how = self.rng.randrange(5)
            if how == 0:
                self.say(f"{k}[0] = {self.pick(self.doubtful(), self.plain(), self.plain())};")
            elif how == 1:
                self.say(f"if ({self.decides()}) {k}[0] = {self.pick(self.doubtful(), self.doubtful(), self.plain())};")
            elif how == 2:
                self.say(f"if ({self.decides()}) {k}[0] = {self.doubtful()}; else {k}[0] = {self.plain()};")
            elif how == 3:
                i = self.new("i")
                head, tail = self.loop(i)
                self.say(head)
                self.say(f"  if ({self.decides()}) {k}[0] = {self.pick(self.element(i), self.plain())};")
                self.say(tail)
            else:
                self.say(f"if ({self.decides()}) {{ acc += (int)(i64){k}[0] & 1; {k}[0] = {self.plain()}; }}")
            if self.chance(70):
                self.say("{")
                self.say(f"int* {q} = {k}[0];")
                self.say((f"if ({self.decides()}) " if self.chance(40) else "") + "{")
                self.uses(q)
                self.say("}")
                self.say("}")

    def by_index(self):
        """One of the pointers among the parameters."""
        if not self.tables:
            return self.spilled()
        q, t = self.new("q"), self.rng.choice(self.tables)
        at = self.pick("blockIdx.x & 7", "min((int)blockIdx.x, 9)", f"{self.mode()} & 3", "threadIdx.x & 1", "(blockIdx.x & 1) + 1",
                       "(threadIdx.x >> 4) & 1", "gridDim.x & 3", "blockIdx.x")
        self.say(f"int* {q} = {t}.at[{at}];")
        if self.chance(30):
            self.say(f"if ({self.decides()}) {q} = {self.plain()};")
        self.uses(q)

    def make_body(self):
        self.say(f"int acc = {self.pick('1', self.thread())};")
        if self.chance(45):  # so that nothing else is doubtful
            self.say("{")
            self.pick(self.spilled, self.spilled, self.flagged, self.flagged, self.stored_again)()
            self.say("}")
        else:
            for _ in range(self.rng.randint(1, 3)):
                self.statement()
        self.say(f"{self.pointers[0]}[threadIdx.x] = acc;")

    def layout(self):
        words = [",".join(map(str, each)) or "-" for each in (self.words, self.kinds["arrays"], self.kinds["halves"])]
        return f"{self.name} {self.offset} {words[0]} choices {words[1]} {words[2]}"


def write(folder, seed, count):
    """kernels.cu and kernels.txt, as make_kernels.write does; a table's last fields: which words are arrays, which half an address."""
    kernels = [Kernel(random.Random(each), f"c{each}") for each in range(seed, seed + count)]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "kernels.cu"), "w") as file:
        file.write(PREFACE + "\n" + "\n\n".join(kernel.text() for kernel in kernels) + "\n")
    with open(os.path.join(folder, "kernels.txt"), "w") as file:
        file.write("".join(kernel.layout() + "\n" for kernel in kernels))
