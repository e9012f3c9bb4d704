"""Parameters of a random kernel, and random CUDA C++ expressions of them: numbers, indices, guards, conditions."""


class Expressions:
    """What kernels compute with: parameters, numbers, and conditions. A kernel takes its choices from `rng`."""

    def __init__(self, rng, name):
        self.rng, self.name = rng, name
        self.lines, self.indent, self.names = [], 1, 0
        self.params, self.words, self.offset = [], [], 0
        self.pointers, self.ints, self.unsigneds, self.longs, self.shorts = [], [], [], [], []
        self.counts, self.shared = [], False
        self.make_params()

    def new(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def chance(self, percent):
        return self.rng.randrange(100) < percent

    def pick(self, *choices):
        return self.rng.choice(choices)

    # ---- parameters ----

    def param(self, kind, size, align, known=None, words=()):
        name = self.new("a")
        self.offset = (self.offset + align - 1) // align * align
        self.words += [self.offset + word for word in words]
        self.offset += size
        self.params.append(f"{kind} {name}")
        if known is not None:
            known.append(name)
        return name

    def make_params(self):
        kinds = ["pointer"] * self.rng.randint(3, 7) + ["int"] * self.rng.randint(2, 3) + ["unsigned", "long"]
        kinds += [each for each in ("short", "long", "divider", "offsets") if self.chance(50)]
        kinds += ["table"] if self.chance(40) else []
        self.rng.shuffle(kinds)
        self.divider = self.offsets = self.table = None
        for kind in kinds:
            if kind == "pointer":
                self.param("int*", 8, 8, self.pointers, [0])
            elif kind == "int":
                self.param("int", 4, 4, self.ints)
            elif kind == "unsigned":
                self.param("unsigned", 4, 4, self.unsigneds)
            elif kind == "long":
                self.param("i64", 8, 8, self.longs)
            elif kind == "short":
                self.param("short", 2, 2, self.shorts)
            elif kind == "divider":
                self.divider = self.param("Divider", 12, 4)
            elif kind == "offsets":
                self.offsets = self.param("Offsets", 64, 4)
            else:
                self.table = self.param("const __grid_constant__ Lookup", 88, 8, words=[0, 8, 16, 24])
        self.unused = self.pointers[1:]

    # ---- numbers ----

    def const(self, least=-3, most=40):
        if self.chance(5):
            return self.pick("2147483647", "(-2147483647 - 1)", "65535", "-65536", "1000003", "0x7ffffff0")
        return str(self.rng.randint(least, most))

    def thread(self):
        return self.pick("(int)threadIdx.x", "(int)threadIdx.x", "(int)(blockIdx.x * blockDim.x + threadIdx.x)",
                         "(int)(threadIdx.x & 31)", "(int)(threadIdx.x >> 3)", "(int)blockIdx.x",
                         "(int)(threadIdx.x + 32 * threadIdx.y)")

    def number(self, depth=0):
        if depth > 2 or self.chance(30):
            return self.pick(self.thread(), self.const(), self.rng.choice(self.ints), self.rng.choice(self.ints),
                             *self.counts, *self.counts, *self.shorts)
        a, b = self.number(depth + 1), self.number(depth + 1)
        kind = self.rng.randrange(29)
        if kind < 7:
            return f"({a} {self.pick('+', '-', '*', '+')} {b})"
        if kind < 10:
            return f"({a} {self.pick('&', '|', '^')} {self.pick(b, self.const(0, 255), '~15', '0xff00', '-8')})"
        if kind == 10:
            return f"({a} {self.pick('<<', '>>')} {self.pick(str(self.rng.randint(1, 9)), f'({b} & 7)')})"
        if kind == 11:
            return f"(int)((unsigned)({a}) >> {self.pick(str(self.rng.randint(1, 30)), f'({b} & 31)')})"
        if kind < 14:
            return f"({a} {self.pick('/', '%')} {self.pick('3', '7', '10', '16', '-5', '641', f'({b} | 1)', f'(({b} & 15) + 1)')})"
        if kind < 16:
            return f"(int)((unsigned)({a}) {self.pick('/', '%')} {self.pick('3u', '7u', '10u', '12u', '641u', f'((unsigned)({b}) | 1u)')})"
        if kind < 18:
            return f"{self.pick('min', 'max')}({a}, {self.pick(b, self.const())})"
        if kind == 18:
            return f"(int){self.pick('min', 'max')}((unsigned)({a}), (unsigned)({self.pick(b, self.const(0, 60))}))"
        if kind == 19:
            return f"min(max({a}, {self.const(-2, 2)}), {self.pick(self.const(3, 40), b)})"
        if kind == 20:
            return f"({self.condition(depth + 1)} ? {a} : {b})"
        if kind == 21:
            bytes_of = self.pick("0x4441", "0x4432", "0x4321", "0x9991")  # of a's four, and zeros
            return self.pick(f"(int)(unsigned char)({a})", f"(int)(short)({a})", f"(int)(signed char)({a})",
                             f"(int)__byte_perm({a}, 0, {bytes_of})",
                             f"(int)(unsigned short)({a})", f"(int)(({a}) << 20 >> 20)", f"(int)((unsigned)({a}) << 22 >> 22)")
        if kind == 22:
            return self.pick(f"__popc({a})", f"abs({a})", f"__clz({a})", f"__ffs({a})", f"~({a})", f"-({a})")
        if kind == 23:
            return self.pick(f"clamped({a}, {b})", f"wrapped({a}, {b})", f"(int)sum_to({a})", f"(int)area({a}, {b})")
        if kind == 24:
            return self.pick(f"(int)__umulhi({a}, {b})", f"__mulhi({a}, {b})", f"__mulhi({a}, 0x55555556)")
        if kind == 25:
            return f"(int)({self.wide(depth + 1)}{self.pick('', ' >> 32', ' >> 3', ' & 63')})"
        if kind == 26 and depth == 0 and not self.in_branch:
            if self.shared and self.chance(40):
                return f"s[({a}) & 63]"
            return f"__shfl_{self.pick('xor_', 'down_', 'up_', '')}sync(~0u, {a}, {self.rng.randint(0, 9)})"
        if kind == 27 and self.divider:
            return f"(int)split({self.divider}, {a}).{self.pick('quotient', 'rest')}"
        return f"(int)({self.rng.choice(self.unsigneds)} {self.pick('+', '*', '&', '>>')} {self.rng.randint(1, 20)}u)"

    def wide(self, depth=0):
        if depth > 2 or self.chance(25):
            return self.pick(*self.longs, f"(i64)({self.number(depth + 1)})", f"(i64)(unsigned)({self.number(depth + 1)})")
        a, b = self.wide(depth + 1), self.wide(depth + 1)
        kind = self.rng.randrange(16)
        if kind < 5:
            return f"({a} {self.pick('+', '-', '+')} {b})"
        if kind < 8:
            return f"({a} * {self.pick(b, '3', '-4', '12', f'(i64)({self.number(depth + 1)})')})"
        if kind == 8:
            return f"({a} {self.pick('<<', '>>')} {self.pick('1', '5', '31', '32', '33', '40')})"
        if kind == 9:
            return f"({a} & {self.pick('63', '~7ll', '0xffffffffll', '0xff00000000ll', b)})"
        if kind == 10:
            return f"{self.pick('min', 'max')}({a}, {self.pick(b, '(i64)100', '(i64)-3')})"
        if kind == 11:
            return f"({self.condition(depth + 1)} ? {a} : {b})"
        if kind == 12:
            return f"(i64)((u64){a} >> {self.pick('1', '20', '33', '60')})"
        if kind == 13:
            return f"area({self.number(depth + 1)}, {self.number(depth + 1)})"
        return f"(i64)({self.number(depth + 1)}) * {self.pick(*self.longs)}"

    def compared(self, depth):
        relation = self.pick("<", "<=", ">", ">=", "==", "!=")
        kind = self.rng.randrange(6)
        if kind < 3:
            return f"({self.number(depth + 1)} {relation} {self.pick(self.number(depth + 1), self.const())})"
        if kind == 3:
            return f"((unsigned)({self.number(depth + 1)}) {relation} {self.pick('(unsigned)' + self.const(0, 60), self.rng.choice(self.unsigneds))})" \
                if self.chance(70) else f"({self.rng.choice(self.unsigneds)} {relation} (unsigned)({self.number(depth + 1)}))"
        if kind == 4:
            return f"({self.wide(depth + 1)} {relation} {self.pick(self.wide(depth + 1), '7ll', '0ll', '5000000000ll')})"
        return f"((u64)({self.wide(depth + 1)}) {relation} {self.pick(f'(u64)({self.wide(depth + 1)})', '50ull', '0x100000000ull')})"

    def condition(self, depth=0):
        if depth < 2 and self.chance(20):
            return f"({self.condition(depth + 1)} {self.pick('&&', '||', '&', '|', '^')} {self.condition(depth + 1)})"
        return self.pick("", "!") + self.compared(depth)

    # Under which the number named i has bounds, of the forms that programs use.
    def guard(self, i):
        n, m = self.limit(), self.limit()
        return self.pick(
            f"{i} < {n}", f"{i} <= {n}", f"{i} >= 0 && {i} < {n}", f"(unsigned){i} < (unsigned){n}", f"!({i} >= {n})",
            f"{n} > {i}", f"!({i} < {m} || {i} >= {n})", f"{i} == {n}", f"{i} >= {m} && {i} <= {n} && ({i} & 1)",
            f"({i} < {n}) & ({i} > {m})", f"(i64){i} < (i64){n}", f"{i} < {n} && {n} < {m}", f"{i} > {m} && {i} < {n}",
            f"({i} < {n}) != ({i} < {m})", f"{i} > -{n} && {i} < {n}", f"{i} != {n} && {i} < 30 && {i} > -9",
            f"({i} | {n}) >= 0 && {i} < {n}", f"(u64)(i64){i} < (u64){n}", f"-{i} < {n}")

    def limit(self):
        return self.pick(self.rng.choice(self.ints), self.rng.choice(self.ints), str(self.rng.randint(0, 50)),
                         f"({self.rng.choice(self.ints)} & 31)", f"(int){self.rng.choice(self.unsigneds)}",
                         f"min({self.rng.choice(self.ints)}, 20)", f"({self.rng.choice(self.ints)} / 4)")

    def few(self):
        return self.pick(str(self.rng.randint(1, 12)), f"({self.rng.choice(self.ints)} & 15)", f"min({self.rng.choice(self.ints)}, 9)",
                         f"({self.rng.choice(self.ints)} % 7)")
