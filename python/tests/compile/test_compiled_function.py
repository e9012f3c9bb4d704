"""nimble.compile.compiled_function: functions of torch.compile that graphs serve. Here they are made by hand."""

import os
import threading

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from nimble import Nimble  # noqa: E402
from nimble import settings  # noqa: E402
from nimble.compile.compiled_function import _MOST_MOVES, CompiledFunction, lines_of  # noqa: E402
from nimble.compile.graphed_call import MOST_GRAPHS  # noqa: E402
from nimble.guards import switches  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402

AS_COMPILED_FIRST, COMPARED = 1, 3
BEFORE = "before it was prepared"


class Clock:
    """A clock on which a run without the graph takes `without` times as long as one with it."""

    def __init__(self, without=2.0):
        self._next = [0.0, 1.0, 0.0, without]

    def __call__(self):
        self._next.append(self._next.pop(0))
        return self._next[-1]


@pytest.fixture
def backend():
    return ReplayingCapture()


@pytest.fixture
def compiled(backend):
    """compiled(model, inputs, static, written=...): the function for the model; its `ran` counts runs of the model."""
    def make(model, inputs, static, written=(), clock=None, has_room=lambda _: True):
        def counted(given):
            made.ran += 1
            return model(given)

        made = CompiledFunction(counted, inputs, static, written, backend, settings.Settings(), has_room, clock or Clock())
        made.ran = 0
        return made

    return make


def linear(inputs):
    """As compiled functions do: takes the arguments from a list, and empties it."""
    weight, x, bias = inputs
    inputs.clear()
    return [torch.relu(x @ weight), None, x.sum() + bias]


def two(weight=None, bias=None):
    return [torch.randn(3, 4) if weight is None else weight, torch.randn(2, 3), torch.randn(1) if bias is None else bias]


def same(one, other):
    return len(one) == len(other) and all(a is b or torch.equal(a, b) for a, b in zip(one, other))


def check(function, model, make_inputs, times):
    """Makes `count` calls, and checks each against the model."""
    results = []
    for _ in range(times):
        inputs = make_inputs()
        want, given = model(list(inputs)), list(inputs)
        got = function(given)
        assert given == [] and type(got) is type(want) and same(got, want)
        results.append((got, want))
    for got, want in results:
        assert same(got, want), "a later call has written to what an earlier one returned"


def test_calls_are_served(compiled, backend):
    weight, bias = torch.randn(3, 4), torch.randn(1)
    function = compiled(linear, two(weight, bias), (0, 2))
    check(function, linear, lambda: two(weight, bias), AS_COMPILED_FIRST)
    assert (backend.captures, function.ran) == (0, 1)
    check(function, linear, lambda: two(weight, bias), COMPARED)
    assert (backend.captures, function.compared, function.served) == (1, COMPARED, 0)
    ran = function.ran
    check(function, linear, lambda: two(weight, bias), 20)
    assert (backend.captures, function.served, function.ran) == (1, 20, ran)
    weight.mul_(2)  # which the graph reads where it is
    bias.add_(1)
    check(function, linear, lambda: two(weight, bias), 3)
    assert function.ran == ran and dict(function.as_compiled) == {BEFORE: 1}


def test_under_inference_mode_and_with_gradients_enabled(compiled, backend):
    parameter = torch.nn.Parameter(torch.randn(3, 4))
    for mode in (torch.inference_mode(), torch.enable_grad()):
        with mode:
            given = parameter.detach()
            function = compiled(linear, two(given), (0,))
            bias = torch.randn(1)
            check(function, linear, lambda: two(given, bias), 9)
            assert function.served == 9 - AS_COMPILED_FIRST - COMPARED


def test_weights_that_move(compiled, backend):
    function = compiled(linear, two(), (0, 2))
    held = []
    for _ in range(_MOST_MOVES + 3):
        held.append((torch.randn(3, 4), torch.randn(1)))
        check(function, linear, lambda: two(*held[-1]), AS_COMPILED_FIRST + COMPARED + 2)
    assert backend.captures == _MOST_MOVES + 1
    assert "its weights move again and again" in function.as_compiled


def test_a_weight_that_is_where_it_was(compiled, backend):
    """As where a function gets another tensor on the same memory each time."""
    weight, bias = torch.randn(3, 4), torch.randn(1)
    function = compiled(linear, two(weight, bias), (0, 2))
    check(function, linear, lambda: two(weight.view(3, 4), bias[:]), 10)
    assert (backend.captures, function.served) == (1, 6)


def repeated(inputs):
    times, x, weight = inputs
    inputs.clear()
    return (x.repeat(times) * weight, times)


def test_integers_and_shapes(compiled, backend):
    weight = torch.randn(1)
    function = compiled(repeated, [1, torch.randn(2), weight], (2,))
    for size in (2, 3):
        for times in (1, 4):
            check(function, repeated, lambda: [times, torch.randn(size), weight], 6)
    assert (backend.captures, function.served) == (4, 8)
    for times in range(10, 10 + MOST_GRAPHS):
        check(function, repeated, lambda: [times, torch.randn(2), weight], 3)
    assert backend.captures == MOST_GRAPHS and f"its shapes are of more than {MOST_GRAPHS} kinds" in function.as_compiled
    served = function.served
    check(function, repeated, lambda: [4, torch.randn(3), weight], 2)
    assert function.served == served + 2


def test_a_cache_that_is_written(compiled, backend):
    def step(inputs):
        cache, x = inputs
        inputs.clear()
        cache.mul_(0.5).add_(x)
        return [cache.sum(), cache + 1]

    ours, theirs = torch.ones(4), torch.ones(4)
    function = compiled(step, [ours, torch.randn(4)], (0,), written=(0,))
    for _ in range(12):
        x = torch.randn(4)
        assert same(function([ours, x]), step([theirs, x])) and torch.equal(ours, theirs)
    assert (backend.captures, function.served) == (1, 12 - AS_COMPILED_FIRST - COMPARED)


def test_random_numbers(compiled, backend):
    def noisy(inputs):
        (x,) = inputs
        inputs.clear()
        return [x + torch.rand(3)]

    backend.draws_on_host = True
    function, x = compiled(noisy, [torch.zeros(3)], ()), torch.zeros(3)
    torch.manual_seed(1)
    want = [noisy([x])[0] for _ in range(9)]
    torch.manual_seed(1)
    got = [function([x])[0] for _ in range(9)]
    assert same(got, want) and function.served == 5


@pytest.mark.parametrize("inputs, static, written, why", [
    ([torch.ones(2), torch.ones(2)], (0,), (1,), "it writes to its arguments"),
    ([torch.ones(2), 3], (0,), (), "none of its arguments is a tensor"),
    ([torch.ones(2), "text", torch.ones(2)], (0,), (), "its arguments are more than tensors and integers"),
    ([torch.empty(2, device="meta"), torch.ones(2)], (0,), (), "it reads memory that is not on cpu"),
])
def test_what_never_has_a_graph(compiled, backend, inputs, static, written, why):
    function = compiled(lambda given: [], inputs, static, written)
    for _ in range(9):
        assert function(list(inputs)) == []
    assert backend.captures == 0 and dict(function.as_compiled) == {why: 9}


def test_arguments_elsewhere(compiled, backend):
    function = compiled(lambda given: [given[0] + 1], [torch.ones(2)], ())
    backend.device_type = "cuda"
    for _ in range(4):
        assert torch.equal(function([torch.ones(2)])[0], torch.full((2,), 2.0))
    assert backend.captures == 0 and any("is on cpu, not on cuda" in why for why in function.as_compiled)


def test_one_tensor_twice(compiled, backend):
    function = compiled(lambda given: [given[0] + given[1]], [torch.ones(2), torch.ones(2)], ())
    x = torch.ones(2)
    for _ in range(4):
        assert torch.equal(function([x, x])[0], torch.full((2,), 2.0))
    assert backend.captures == 0 and "two of its arguments are one tensor" in function.as_compiled


def test_a_graph_that_does_something_else(compiled, backend, capsys):
    weight, bias = torch.randn(3, 4), torch.randn(1)
    function = compiled(linear, two(weight, bias), (0, 2))
    backend.spoil = lambda graph: graph.outputs[0].add_(1e-6)
    check(function, linear, lambda: two(weight, bias), 9)
    assert (backend.captures, function.served, backend.closed) == (1, 0, 1)
    assert "its graph differs from a run without: output[0] (float32[2, 4]) differs at [0, 0]" in capsys.readouterr().err


@pytest.mark.parametrize("model, served", [
    (lambda given: (lambda y: [y, y.view(-1)])(given[0] + 1), 2),
    (lambda given: [given[0].view(-1)], 0),
    (lambda given: [(given[0] + 1)[:, :1]], 2),
], ids=["each other", "an argument", "a part"])
def test_outputs_that_share_memory(compiled, backend, model, served):
    function = compiled(model, [torch.randn(2, 3)], ())
    for _ in range(6):
        x = torch.randn(2, 3)
        got, want = function([x]), model([x])
        assert same(got, want) and [t.stride() for t in got] == [t.stride() for t in want]
    assert (backend.captures, function.served) == (1, served)


def test_an_output_that_is_a_weight(compiled, backend):
    weight = torch.randn(2)
    function = compiled(lambda given: [given[0] * given[1], given[0]], [weight, torch.randn(2)], (0,))
    for _ in range(9):
        x = torch.randn(2)
        got = function([weight, x])
        assert got[1] is weight and torch.equal(got[0], weight * x)
    assert function.served == 5


def test_what_the_function_raises(compiled, backend):
    def refuses(given):
        if given[0].sum() > 0:
            raise ValueError("no")
        return [given[0] * 2]

    function = compiled(refuses, [torch.zeros(2)], ())
    for i in range(12):
        if i % 2:
            with pytest.raises(ValueError, match="no"):
                function([torch.ones(2)])
        else:
            assert torch.equal(function([torch.zeros(2)])[0], torch.zeros(2))
    assert function.served == 0


def test_what_cannot_be_captured(compiled, backend, capsys):
    def fail():
        raise MemoryError("none left")

    backend.at_capture = fail
    weight, bias = torch.randn(3, 4), torch.randn(1)
    function = compiled(linear, two(weight, bias), (0, 2))
    check(function, linear, lambda: two(weight, bias), 6)
    assert backend.captures == 1 and capsys.readouterr().err.count("runs without a graph: none left") == 1


def test_what_is_as_fast_without(compiled, backend, capsys):
    weight, bias = torch.randn(3, 4), torch.randn(1)
    function = compiled(linear, two(weight, bias), (0, 2), clock=Clock(without=0.5))
    check(function, linear, lambda: two(weight, bias), 9)
    assert (function.served, backend.closed) == (0, 1) and "it is as fast without" in capsys.readouterr().err


def test_no_room_and_other_ranks(compiled, backend, monkeypatch):
    weight, bias = torch.randn(3, 4), torch.randn(1)
    function = compiled(linear, two(weight, bias), (0, 2), has_room=lambda device: False)
    check(function, linear, lambda: two(weight, bias), 3)
    rooms = [True, False]
    tight = compiled(linear, two(weight, bias), (0, 2), has_room=lambda device: rooms.pop(0))
    check(tight, linear, lambda: two(weight, bias), 6)
    assert (backend.captures, backend.closed, rooms) == (1, 1, [])
    monkeypatch.setattr(switches, "has_other_ranks", lambda: True)
    other = compiled(linear, two(weight, bias), (0, 2))
    check(other, linear, lambda: two(weight, bias), 3)
    assert backend.captures == 1
    assert any("memory is free" in why for why in function.as_compiled)
    assert any("other ranks" in why for why in other.as_compiled)


def test_as_a_part_of_another_graph(compiled, backend):
    """A Nimble around it captures the compiled function, and not its graph."""
    weight, bias = torch.randn(3, 4), torch.randn(1)
    function = compiled(linear, two(weight, bias), (0, 2))

    class Around(torch.nn.Module):
        def forward(self, x):
            return function([weight, x, bias])[0]

    class Either(ReplayingCapture):
        def capture(self, work, device, multi_stream, relaxed, beside=None):
            return super().capture(work, device, True, True)

    around = Nimble(Around().eval(), backend=Either())
    for _ in range(9):
        x = torch.randn(2, 3)
        with torch.no_grad():
            assert torch.equal(around(x), linear([weight, x, bias])[0])
    assert backend.captures == 0 and set(function.as_compiled) == {"as a part of another graph"}
    backend.capturing = True
    check(function, linear, lambda: two(weight, bias), 4)
    assert backend.captures == 0


def test_other_threads_run_as_compiled_meanwhile(compiled, backend):
    weight, bias = torch.randn(3, 4), torch.randn(1)
    function = compiled(linear, two(weight, bias), (0, 2))
    check(function, linear, lambda: two(weight, bias), 1)
    failures = []

    def other():
        try:
            check(function, linear, lambda: two(weight, bias), 5)
        except BaseException as error:
            failures.append(error)

    def at_capture():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    backend.at_capture = at_capture
    check(function, linear, lambda: two(weight, bias), 1)
    backend.at_capture = None
    assert not failures and function.as_compiled["while another thread prepared it"] == 5
    threads = [threading.Thread(target=other) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and backend.captures == 1


def test_a_forked_child(compiled, backend):
    weight, bias = torch.randn(3, 4), torch.randn(1)
    function = compiled(linear, two(weight, bias), (0, 2))
    check(function, linear, lambda: two(weight, bias), 6)
    child = os.fork()
    if child == 0:
        served = function.served
        try:
            check(function, linear, lambda: two(weight, bias), 2)
            os._exit(0 if function.served == served else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_said(compiled, backend):
    weight, bias = torch.randn(3, 4), torch.randn(1)
    function, other = compiled(linear, two(weight, bias), (0, 2)), compiled(linear, two(), (0, 2), written=(1,))
    assert lines_of([]) == []
    check(function, linear, lambda: two(weight, bias), 9)
    check(other, linear, two, 2)
    assert lines_of([function, other]) == [
        "PyTorch: torch.compile: 2 functions, 5 calls served by graphs, 3 compared, 3 as compiled (2 it writes to its arguments; "
        "1 before it was prepared); graphs: 1 rewritten"]
    function.close()
    assert backend.closed == 1
    check(function, linear, lambda: two(weight, bias), 2)
    assert backend.captures == 1


def test_graphs_go_at_once(compiled, backend):
    import gc
    import weakref

    weight, bias = torch.randn(3, 4), torch.randn(1)
    function = compiled(linear, two(weight, bias), (0, 2))
    gc.collect()
    gc.disable()
    try:
        check(function, linear, lambda: two(weight, bias), 6)
        (graph,) = [weakref.ref(entry.graph) for entry in function._entries.values()]
        check(function, linear, two, 1)  # its weights are elsewhere
        assert graph() is None
    finally:
        gc.enable()


def test_dropout_of_recurrent_modules(compiled, backend):
    """Restoring random numbers resets cuDNN's dropout state, and preparing and comparing restore them."""
    function = compiled(linear, inputs := two(), (0, 2))
    check(function, linear, lambda: two(inputs[0], inputs[2]), AS_COMPILED_FIRST + COMPARED - 1)
    assert backend.captures == 1
    recurrent = torch.nn.GRU(3, 3, 2, dropout=0.5)
    before = function.ran
    check(function, linear, lambda: two(inputs[0], inputs[2]), 3)
    assert function.ran == before + 3 and "cuDNN" in str(function.as_compiled) and recurrent
    last = compiled(linear, inputs, (0, 2))
    check(last, linear, lambda: two(inputs[0], inputs[2]), 9)
    assert backend.captures == 1
