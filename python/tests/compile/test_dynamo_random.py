"""torch.compile(backend="nimble") with random functions: views, writes to arguments, buffers and views, random numbers, and outputs of all
kinds do what they do eagerly, to the bit, with the same sharing of memory."""

import copy
import random

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from dynamo_tools import COMPARED, FIRST, check_same, compiler, served  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402

CALLS = FIRST + COMPARED + 3
SHAPE = (4, 6)
VIEWS = {
    "transpose": lambda x: x.transpose(0, -1),
    "first": lambda x: x[:1],
    "half": lambda x: x[..., : x.shape[-1] // 2 + 1],
    "flat": lambda x: x.reshape(-1),
    "detach": lambda x: x.detach(),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "diagonal": lambda x: x.diagonal() if x.dim() > 1 else x,
}
MAPS = {
    "relu": torch.relu,
    "scale": lambda x: x * 1.5 + 0.25,
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),  # may be x itself
    "softmax": lambda x: torch.softmax(x, -1),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "to": lambda x: x.to(torch.float32),
    "half_and_back": lambda x: x.to(torch.float16).to(torch.float32),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5, True),
    "noise": lambda x: x + torch.rand(x.shape),
}
WRITES = {
    "add_": lambda x: x.add_(0.5),
    "mul_": lambda x: x.mul_(0.5),
    "zero_first": lambda x: x[..., :1].zero_(),
    "copy_": lambda x: x.copy_(torch.tanh(x)),
    "noise_": lambda x: x.add_(torch.randn_like(x)),
}
PAIRS = {
    "plus": lambda x, y: x + y.sum(),
    "plus_": lambda x, y: x.add_(y.mean()),
    "cat": lambda x, y: torch.cat([x.reshape(-1), y.reshape(-1)]),
}


class Program(torch.nn.Module):
    """A list of ops, each on earlier values: arguments, a parameter, buffers, and what ops have made."""

    def __init__(self, seed):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(SHAPE))
        self.register_buffer("state", torch.randn(SHAPE))
        self.attribute = torch.randn(6)
        chance = random.Random(seed)
        self.arguments = chance.choice((1, 2, 3))
        self.ops = []
        self.writable = []
        count = self.arguments + 3
        weight = self.arguments
        own = {weight}  # the weight, and views of it: not written
        for _ in range(chance.randint(2, 9)):
            kind, one, other = chance.choice((VIEWS, MAPS, WRITES, PAIRS)), chance.randrange(count), chance.randrange(count)
            name = chance.choice(sorted(kind))
            if one in own and (kind is WRITES or name == "plus_"):
                kind, name = MAPS, "scale"
            if one in own and (kind is VIEWS or name in ("contiguous", "to")):
                own.add(count)
            self.ops.append((name, one, other))
            count += 1
        self.returned = [chance.choice((chance.randrange(count), chance.randrange(count), None, "size"))
                         for _ in range(chance.randint(1, 5))]

    def forward(self, *arguments):
        values = [*arguments, self.weight, self.state, self.attribute]
        for name, one, other in self.ops:
            if name in PAIRS:
                values.append(PAIRS[name](values[one], values[other]))
            else:
                values.append({**VIEWS, **MAPS, **WRITES}[name](values[one]))
        return [None if each is None else arguments[0].shape[0] if each == "size" else values[each] for each in self.returned]


def inputs(chance, count, rows):
    """Some of them views of a larger tensor, or not contiguous."""
    found = []
    for _ in range(count):
        kind = chance.choice(("plain", "view", "transposed"))
        memory = torch.randn(rows + 2, 8)
        found.append({"plain": memory[:rows, :6].clone(), "view": memory[1:rows + 1, :6],
                      "transposed": torch.randn(6, rows).t()}[kind])
    return found


def state_of(module):
    return [module.weight, module.state, module.attribute]


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_programs(first, monkeypatch):
    monkeypatch.setattr("atexit.register", lambda *_: None)
    total = 0
    for seed in range(first, first + 20):
        torch._dynamo.reset()
        torch.manual_seed(seed)
        chance = random.Random(seed)
        ours = Program(seed)
        theirs = copy.deepcopy(ours)
        nimble = compiler(ReplayingCapture())
        compiled = torch.compile(ours, backend=nimble, dynamic=chance.choice((None, True, False)))
        rows = [4, chance.choice((4, 7))]
        kinds = random.Random(seed + 1000)
        layouts = {n: kinds.getstate() for n in rows}
        with chance.choice((torch.no_grad, torch.inference_mode))():
            for call in range(2 * CALLS):
                n = rows[call // CALLS]
                layout = random.Random()
                layout.setstate(layouts[n])  # the same kinds of arguments at each call
                given = inputs(layout, ours.arguments, n)
                # With their memory, which views write to.
                mine, want = given, copy.deepcopy(given)
                state = torch.get_rng_state()
                expected = theirs(*want)
                after = torch.get_rng_state()
                torch.set_rng_state(state)
                try:
                    got = compiled(*mine)
                    check_same([*got, *mine, *state_of(ours)], [*expected, *want, *state_of(theirs)])
                    assert torch.equal(torch.get_rng_state(), after)
                except BaseException as error:
                    raise AssertionError(f"seed {seed}, call {call}: {ours.ops}, {ours.returned}") from error
        total += served(nimble)
        del compiled
    assert total > 20 * CALLS / 2, "most of them are served"
