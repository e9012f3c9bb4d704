"""torch.compile(backend="nimble") with random functions: views, writes to arguments, buffers and views, random numbers, and outputs of all
kinds do what they do eagerly, to the bit, with the same sharing of memory."""

import copy
import random

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from dynamo_programs import Program, inputs, state_of  # noqa: E402
from dynamo_tools import COMPARED, FIRST, check_same, compiler, served  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402

CALLS = FIRST + COMPARED + 3


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
