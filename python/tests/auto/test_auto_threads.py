"""nimble.auto: errors, and other threads."""

import contextlib
import sys
import threading

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from nimble import Nimble  # noqa: E402
from nimble.auto import calls, entry_lifecycle  # noqa: E402
from nimble.auto.threads import Threads  # noqa: E402
from nimble.nesting import nesting  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from auto_tools import (COMPARED, EAGER_FIRST, Net, auto, backend, graphs, module_with, net, prepared, run,  # noqa: E402, F401
                        said, served)


class Relaxed(ReplayingCapture):
    def capture(self, work, device, multi_stream, relaxed):
        return super().capture(work, device, True, True)


def test_exceptions_are_the_modules(auto, backend, net):
    class Refuses(Exception):
        pass

    def forward(self, x):
        if self.refuses.item():
            raise Refuses()
        return x * 2

    module = module_with(forward, refuses=torch.tensor(False))
    for i in range(20):
        module.refuses.fill_(i % 2 == 1)
        if i % 2:
            with pytest.raises(Refuses):
                module(torch.ones(2))
        else:
            module(torch.ones(2))
        assert nesting.depth == 0 and sys.getprofile() is None
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        net(torch.ones(2, 7))
    assert nesting.depth == 0


def test_our_own_mistakes_stay_ours(auto, backend, net, said, monkeypatch):
    monkeypatch.setattr(calls.AutoModule, "_entry_for", lambda *_: 1 / 0)
    run(net, 3)
    monkeypatch.undo()
    assert said.getvalue().count("Net runs eagerly: ZeroDivisionError") == 1
    run(net, 9)
    assert backend.captures == 0


def test_what_preparing_and_graphs_raise(auto, backend, net, said):
    def fail():
        raise MemoryError("none left")

    backend.at_capture = fail
    run(net, 9)
    assert backend.captures == 1 and "Net runs eagerly: MemoryError: none left" in said.getvalue()
    backend.at_capture = None
    other = Net().eval()
    run(other, EAGER_FIRST + COMPARED)
    assert graphs(auto, other) == 1
    backend.spoil = lambda graph: fail()
    run(other, 9)
    assert graphs(auto, other) == 0 and said.getvalue().count("none left") == 2


def test_what_cannot_be_captured(auto, backend, net):
    def forward(self, x):
        if backend.capturing:
            raise RuntimeError("not while capturing")
        return x * 2

    module = module_with(forward)
    run(module, 9)
    assert backend.captures == 1 and graphs(auto, module) == 0
    why = "cannot be captured as a CUDA graph in the module itself: not while capturing"
    assert served(auto, module).reasons()[0] == (why, 6)


def test_threads(auto, backend, net, monkeypatch):
    monkeypatch.setattr(entry_lifecycle, "_MOST_DISTURBED", 1000)  # however busy the machine is
    prepared(auto, backend, net)
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _ in range(40):
                x = torch.randn(2, 3, generator=generator)
                if not torch.equal(net(x), Net.forward(net, x)):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    run(net, EAGER_FIRST + 1)  # one of them may have come while another one's call was compared, which ends the graph
    assert graphs(auto, net) == 1


def test_another_thread_while_it_is_prepared(auto, backend, net):
    def come():
        def other():
            with torch.no_grad():
                net(torch.ones(2, 3))
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    backend.at_capture = come
    run(net, 4)
    assert backend.captures == 1 and graphs(auto, net) == 0 and backend.closed == 1
    assert served(auto, net).eager["while another thread ran it"] == 1
    backend.at_capture = None
    run(net, 9)
    assert graphs(auto, net) == 1


def in_thread(function):
    def work():
        with torch.no_grad():
            function()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_another_thread_while_it_is_compared(auto, backend, net):
    run(net, EAGER_FIRST + 1)
    assert graphs(auto, net) == 1
    backend.spoil = lambda graph: (setattr(backend, "spoil", None), in_thread(lambda: net(torch.ones(2, 3))).join())
    run(net, 1)
    assert graphs(auto, net) == 0 and backend.closed == 1
    run(net, 9)
    assert graphs(auto, net) == 1


def test_another_thread_while_what_is_compared_is_put_back(auto, backend):
    """Through another module, so that its calls are not attributed to this one."""
    def forward(self, x):
        self.seen.add_(1)
        return x * 2

    module = module_with(forward)
    module.register_buffer("seen", torch.zeros(()))
    around = torch.nn.Sequential(module).eval()
    threads = []

    def come(_):
        if len(threads) < EAGER_FIRST:  # so that it gets no graph itself
            threads.append(in_thread(lambda: around(torch.ones(2, 3))))
            threads[-1].join(0.2)

    backend.spoil = come
    for _ in range(12):
        module(torch.ones(2, 3))
    for thread in threads:
        thread.join()
    assert module.seen == 12 + EAGER_FIRST and backend.captures == 1 and graphs(auto, module) == 1


def test_another_thread_that_draws_random_numbers_meanwhile(auto, backend):
    module = module_with(lambda self, x: torch.nn.functional.dropout(x, 0.5, True) * torch.rand_like(x))
    other = module_with(lambda self, x: x * torch.rand(2))  # which no graph serves
    threads, drawn = [], []

    def come(_):
        if len(threads) < 3:
            threads.append(in_thread(lambda: drawn.append(other(torch.ones(2)).tolist())))
            threads[-1].join(0.2)

    backend.spoil = come
    for _ in range(8):
        torch.rand(1)
        module(torch.ones(2, 3))
    for thread in threads:
        thread.join()
    assert backend.captures == 1 and graphs(auto, module) == 1
    assert len(drawn) == 3 and len(set(map(tuple, drawn))) == 3, drawn


def test_another_thread_that_is_in_another_module(auto, backend):
    """Its call may never end: no thread waits that long. Where nothing is restored no thread waits at all."""
    began, may_end = threading.Event(), threading.Event()

    def waits(self, x):
        began.set()
        may_end.wait(20)
        return x * 2

    def writes(self, x):
        self.seen.add_(1)
        return x * 2

    writing, plain = module_with(writes), module_with(lambda self, x: x * 2)
    writing.register_buffer("seen", torch.zeros(()))
    thread = in_thread(lambda: module_with(waits)(torch.ones(2, 3)))
    began.wait(20)
    run(plain, 9)
    assert backend.captures == 1
    for _ in range(6):
        writing(torch.ones(2, 3))
    assert backend.captures == 1 and writing.seen == 6
    may_end.set()
    thread.join()
    for _ in range(6):
        writing(torch.ones(2, 3))
    assert backend.captures == 2 and writing.seen == 12


def test_a_wait_to_be_alone_that_is_interrupted(monkeypatch):
    threads = Threads()
    threads.enter(2, "another one's")
    for interrupts in True, False:
        def wait(*_):
            if interrupts:
                raise KeyboardInterrupt

        monkeypatch.setattr(threading.Condition, "wait", wait)
        with pytest.raises(KeyboardInterrupt) if interrupts else contextlib.nullcontext():
            with threads.exclusive(1) as alone:
                assert not alone.is_given
        monkeypatch.undo()
    threads.leave(2)
    with threads.exclusive(1) as alone:
        assert alone.is_given


def test_another_thread_is_in_it(auto, backend):
    began, may_end = threading.Event(), threading.Event()

    def forward(self, x, waits=None):
        if waits:
            began.set()
            may_end.wait(20)
        return x * 2

    module = module_with(forward)
    thread = in_thread(lambda: module(torch.ones(2, 3), True))
    began.wait(20)
    run(module, 9)
    assert backend.captures == 0
    may_end.set()
    thread.join()
    run(module, 9)
    assert backend.captures == 1


def test_a_graph_that_fails_when_it_has_written(auto, backend):
    def forward(self, x):
        self.seen.add_(1)
        return x * 2

    module = module_with(forward)
    module.register_buffer("seen", torch.zeros(()))
    run(module, EAGER_FIRST + COMPARED)
    module.seen.zero_()

    def fail(graph):
        raise MemoryError("none left")

    backend.spoil = fail
    with pytest.raises(MemoryError):
        module(torch.ones(2))  # of another kind, which runs eagerly
        module(torch.ones(2, 3))
    assert module.seen == 2
    module(torch.ones(2, 3))
    assert module.seen == 3 and graphs(auto, module) == 0


def test_nimble_itself_is_not_looked_at(auto, backend, net):
    model = Nimble(net, backend=Relaxed())
    for _ in range(9):
        model(torch.ones(2, 3))
    assert id(net) not in auto._modules
