"""torch.compile(backend="nimble") with random functions of tensors that grow and others: in pieces they do what they do eagerly, to the
bit, for every length, with the same sharing of memory; and no length makes another capture."""

import copy
import random

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from dynamo_programs import KINDS, PAIRS, VIEWS, Program, inputs, state_of  # noqa: E402
from dynamo_tools import check_same, compiler, pieces_of  # noqa: E402
from nimble.compile import output_buffers, piecewise_graph, pieces  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402

LENGTHS = (3, 5, 4, 9, 7, 6, 8, 11, 10, 3, 12, 5)
PREPARED = 3  # calls: as traced, as traced with buffers, prepared


def run(seed):
    """Calls with many lengths. Returns how many pieces there are, and how many calls CUDA graphs served of all of them."""
    torch._dynamo.reset()
    torch.manual_seed(seed)
    chance = random.Random(seed)
    ours = Program(seed, longest=24, kinds=(*KINDS, VIEWS, PAIRS, PAIRS))
    theirs = copy.deepcopy(ours)
    backend = ReplayingCapture()
    nimble = compiler(backend)
    compiled = torch.compile(ours, backend=nimble)
    kinds, kept, captures = random.Random(seed + 1000).getstate(), ([], []), None
    with chance.choice((torch.no_grad, torch.inference_mode))():
        for call, length in enumerate(LENGTHS):
            layout = random.Random()
            layout.setstate(kinds)  # the same kinds of arguments at each call
            mine = inputs(layout, ours.arguments, length, *[4] * (ours.arguments - 1))
            want = copy.deepcopy(mine)
            torch._dynamo.maybe_mark_dynamic(mine[0], 0)
            state = torch.get_rng_state()
            expected = theirs(*want)
            after = torch.get_rng_state()
            torch.set_rng_state(state)
            got = compiled(*mine)
            kept[0].extend((*got, *mine))  # what earlier calls have returned does not change, unless eagerly
            kept[1].extend((*expected, *want))
            check_same([*kept[0], *state_of(ours)], [*kept[1], *state_of(theirs)])
            assert torch.equal(torch.get_rng_state(), after)
            if call + 1 == PREPARED:
                captures = backend.captures
    found = pieces_of(nimble)
    assert len(found) == 0 or backend.captures == captures <= len(found), (captures, backend.captures, len(found))
    return len(found), sum(piece.served for piece in found)


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr("atexit.register", lambda *_: None)
    monkeypatch.setattr(pieces, "LEAST_OPS", 1)
    monkeypatch.setattr(pieces, "LEAST_SHARE", 0.0)


@pytest.mark.parametrize("first", range(0, 16, 8))
def test_random_programs_in_pieces(small_pieces, first):
    count = served = 0
    for seed in range(first, first + 8):
        try:
            found = run(seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
        count, served = count + found[0], served + found[1]
    assert count > 8 and served > 4 * count, "most of them are in pieces, and these are served"
