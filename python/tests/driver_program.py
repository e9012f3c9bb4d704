"""A program of the driver API by ctypes: two branches of opaque kernels, captured as nimble.capture.cuda_capture does it.

Usage: driver_program.py OPAQUE_IMAGE. Prints one JSON object. test_shim.py runs it under libnimble.so and simcuda.
"""

import ctypes
import json
import sys

from nimble import NimbleError, shim

COUNT = 256
CU = ctypes.CDLL("libcuda.so.1")
POINTER, ADDRESS = ctypes.c_void_p, ctypes.c_uint64


def check(result):
    if result != 0:
        raise RuntimeError(f"CUresult {result}")


def made(function, kind, *arguments):
    out = kind()
    check(function(ctypes.byref(out), *arguments))
    return out


def launch(function, stream, *arguments):
    pointers = (POINTER * len(arguments))(*[ctypes.cast(ctypes.byref(a), POINTER) for a in arguments])
    check(CU.cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, pointers, None))


def number_of_contexts(device):
    """The number of contexts made so far, including this one."""
    context = made(CU.cuCtxCreate_v2, POINTER, 0, device)
    number = made(lambda out: CU.cuCtxGetId(context, out), ctypes.c_uint64).value
    check(CU.cuCtxDestroy_v2(context))
    return number


def settled(stream, device):
    """The results of shim.settle(), and how many contexts it has made: on its own, in a capture, without a context, and
    without room."""
    found = []

    def settle():
        before, current = number_of_contexts(device), made(CU.cuCtxGetCurrent, POINTER).value
        result = shim.settle()
        assert made(CU.cuCtxGetCurrent, POINTER).value == current
        found.append([result, number_of_contexts(device) - before - 1])

    settle()
    check(CU.cuStreamBeginCapture_v2(stream, 2))
    settle()
    check(CU.cuGraphDestroy(made(lambda out: CU.cuStreamEndCapture(stream, out), POINTER)))
    context = made(CU.cuCtxGetCurrent, POINTER)
    check(CU.cuCtxSetCurrent(None))
    settle()
    check(CU.cuCtxSetCurrent(context))
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    check(CU.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    most = made(CU.cuMemAlloc_v2, ADDRESS, ctypes.c_size_t(free.value - (4 << 30) + 512))
    settle()
    check(CU.cuMemFree_v2(most))
    settle()
    return found


def rehearsed(kernel, stream):
    """The results of shim.rehearse() for a launch on the stream, one on another stream, one on another stream that
    waits for it, and one on another stream in a second part, which has waited in the first part, or waits again; for an
    error; and again after that."""
    beside, event = made(CU.cuStreamCreate, POINTER, 1), made(CU.cuEventCreate, POINTER, 2)

    def waiting():
        check(CU.cuEventRecord(event, stream))
        check(CU.cuStreamWaitEvent(beside, event, 0))
        kernel(beside)

    def is_split(second):
        waiting()
        shim.rehearse_part()
        second()

    def failing():
        shim.rehearse_part()
        kernel(beside)
        raise ValueError

    shim.rehearse_part()  # of nothing
    found = [shim.rehearse(stream.value, function)[1] for function in (
        lambda: kernel(stream), lambda: kernel(beside), waiting, lambda: is_split(lambda: kernel(beside)), lambda: is_split(waiting))]
    try:
        shim.rehearse(stream.value, failing)
    except ValueError:
        found.append("failed")
    found.append(shim.rehearse(stream.value, lambda: (kernel(beside), "returned")[1]))
    try:
        shim.rehearse(0, lambda: None)
    except NimbleError as error:
        found.append(str(error))
    found.append(shim.captures())
    check(CU.cuStreamBeginCapture_v2(stream, 2))
    found.append(shim.captures())
    check(CU.cuGraphDestroy(made(lambda out: CU.cuStreamEndCapture(stream, out), POINTER)))
    found.append(shim.captures())
    check(CU.cuCtxSynchronize())
    return found


def main(image):
    check(CU.cuInit(0))
    device = made(CU.cuDeviceGet, ctypes.c_int, 0)
    check(CU.cuCtxSetCurrent(made(CU.cuDevicePrimaryCtxRetain, POINTER, device)))
    module = made(CU.cuModuleLoad, POINTER, image.encode())
    blend = made(CU.cuModuleGetFunction, POINTER, module, b"blend")
    advance = made(CU.cuModuleGetFunction, POINTER, module, b"advance")
    stream = made(CU.cuStreamCreate, POINTER, 1)
    size = ctypes.c_size_t(4 * COUNT)
    states = [made(CU.cuMemAlloc_v2, ADDRESS, size) for _ in range(3)]
    count = ctypes.c_int(COUNT)

    def step():
        x, a, b = memory = [made(CU.cuMemAllocAsync, ADDRESS, size, stream) for _ in range(3)]
        check(CU.cuMemsetD32Async(x, 77, ctypes.c_size_t(COUNT), stream))
        for target, state, salt in ((a, states[0], 3), (b, states[1], 4)):
            launch(blend, stream, x, state, target, count, ctypes.c_uint(salt))
            launch(advance, stream, state, target, count)
        launch(advance, stream, states[2], states[0], count)
        launch(advance, stream, states[2], states[1], count)
        for each in memory:
            check(CU.cuMemFreeAsync(each, stream))

    def reset():
        for i, state in enumerate(states):
            check(CU.cuMemsetD32_v2(state, i + 5, ctypes.c_size_t(COUNT)))
        check(CU.cuCtxSynchronize())

    def result():
        check(CU.cuStreamSynchronize(stream))
        words = (ctypes.c_uint32 * COUNT)()
        check(CU.cuMemcpyDtoH_v2(words, states[2], size))
        return list(words[:8])

    def capture():
        check(CU.cuStreamBeginCapture_v2(stream, 0))
        step()
        graph = made(lambda out: CU.cuStreamEndCapture(stream, out), POINTER)
        return graph, made(CU.cuGraphInstantiateWithFlags, POINTER, graph, ctypes.c_ulonglong(0))

    def is_split(between):
        """A step with two parts: the second reads and releases the first one's allocations."""
        x, a, b = memory = [made(CU.cuMemAllocAsync, ADDRESS, size, stream) for _ in range(3)]
        check(CU.cuMemsetD32Async(x, 77, ctypes.c_size_t(COUNT), stream))
        launch(blend, stream, x, states[0], a, count, ctypes.c_uint(3))
        launch(blend, stream, x, states[0], b, count, ctypes.c_uint(4))
        launch(advance, stream, states[1], a, count)
        between()
        c, d = [made(CU.cuMemAllocAsync, ADDRESS, size, stream) for _ in range(2)]
        launch(blend, stream, a, x, c, count, ctypes.c_uint(5))
        launch(blend, stream, b, x, d, count, ctypes.c_uint(6))
        launch(advance, stream, states[2], c, count)
        launch(advance, stream, states[2], d, count)
        for each in (*memory, c, d):
            check(CU.cuMemFreeAsync(each, stream))

    def capture_parts():
        found = []

        def ends():
            graph = made(lambda out: CU.cuStreamEndCapture(stream, out), POINTER)
            found.append((graph, made(CU.cuGraphInstantiateWithFlags, POINTER, graph, ctypes.c_ulonglong(0))))

        def between():
            ends()
            check(CU.cuStreamBeginCapture_v2(stream, 0))

        check(CU.cuStreamBeginCapture_v2(stream, 0))
        is_split(between)
        ends()
        return found

    def destroy(graphs):
        for graph, executable in graphs:
            check(CU.cuGraphExecDestroy(executable))
            check(CU.cuGraphDestroy(graph))

    def parts():
        said = {}
        reset()
        for _ in range(2):
            is_split(lambda: None)
        said["eager"] = result()
        with shim.learning():
            for _ in range(2):
                is_split(lambda: None)
            check(CU.cuStreamSynchronize(stream))
            graphs = capture_parts()
        destroy(graphs)
        said["again"] = shim.capture_again()
        graphs = capture_parts()
        (_, first), (_, second) = graphs
        reset()
        for _ in range(2):
            for each in (first, second):
                check(CU.cuGraphLaunch(each, stream))
        said["idle"] = [shim.is_idle(stream.value)]
        said["replayed"] = result()
        said["idle"].append(shim.is_idle(stream.value))
        said["status"] = [[status.nodes, status.streams, status.text] for status in map(shim.get_graph, (first.value, second.value))]
        begin, read = states[1].value, (states[0].value, size.value)  # no write to the latter was seen
        said["writes"] = [shim.writes_only(first.value, ranges) for ranges in
                          ([(begin, size.value), read], [read, (7, 8), (begin - 4, size.value + 4)], [], [read, (begin, size.value - 1)],
                           [read, (begin + 1, size.value)], [read, (states[2].value, size.value)])]
        said["writes"] += [shim.writes_only(second.value, [(0, 1 << 60)]), shim.writes_only(12345, [(0, 1 << 60)])]
        said["only seen to be read"] = [shim.writes_only(first.value, [(begin, size.value)]),
                                        shim.writes_only(second.value, [(states[2].value, size.value)])]
        # The second is no longer captured: the failure of the first discards the plan for it.
        said["third"] = shim.capture_again()
        # A copy to memory that the driver does not know.
        there, said["to the host"] = (ctypes.c_uint32 * COUNT)(), []
        for copies in (False, True):
            check(CU.cuStreamBeginCapture_v2(stream, 0))
            for state in states[:2]:
                check(CU.cuMemsetD32Async(state, 77, ctypes.c_size_t(COUNT), stream))
            if copies:
                check(CU.cuMemcpyDtoHAsync_v2(there, states[2], size, stream))
            sets = made(lambda out: CU.cuStreamEndCapture(stream, out), POINTER)
            executable = made(CU.cuGraphInstantiateWithFlags, POINTER, sets, ctypes.c_ulonglong(0))
            said["to the host"].append(shim.writes_only(executable.value, [(state.value, size.value) for state in states]))
            destroy([(sets, executable)])
        check(CU.cuStreamBeginCapture_v2(stream, 0))
        said["idle"] += [shim.is_idle(stream.value), shim.is_idle(0)]
        CU.cuStreamSynchronize(stream)  # not allowed
        said["fails"] = CU.cuStreamEndCapture(stream, ctypes.byref(POINTER())) != 0
        others = [capture()]
        said["other"] = shim.get_graph(others[0][1].value).text
        destroy(others + graphs)
        return said

    said = {"version": shim.version(), "loaded": shim.is_loaded(), "none": shim.get_graph() is None,
            "again": [shim.capture_again()]}
    try:
        with shim.learning():
            with shim.learning():
                pass
    except NimbleError as error:
        said["nested"] = str(error)
    reset()
    step()
    said["once"] = result()
    step()
    said["eager"] = result()
    with shim.learning():
        for _ in range(2):
            step()
        check(CU.cuStreamSynchronize(stream))
        graph, first = capture()
    check(CU.cuGraphExecDestroy(first))
    check(CU.cuGraphDestroy(graph))
    said["again"].append(shim.capture_again())
    graph, last = capture()
    reset()
    for _ in range(2):
        check(CU.cuGraphLaunch(last, stream))
    said["replayed"] = result()
    watch = shim.MemoryWatch(state.value for state in states)
    by_itself = shim.launcher(last.value)
    said["launched"] = [shim.launcher(12345)(stream.value, None)]
    check(CU.cuStreamBeginCapture_v2(stream, 0))
    said["launched"].append(by_itself(stream.value, None))
    empty = made(lambda out: CU.cuStreamEndCapture(stream, out), POINTER)
    nodes = ctypes.c_size_t(9)
    check(CU.cuGraphGetNodes(empty, None, ctypes.byref(nodes)))
    said["launched"].append(nodes.value)
    context = made(CU.cuCtxGetCurrent, POINTER)
    check(CU.cuCtxSetCurrent(None))
    said["launched"].append(by_itself(stream.value, None))
    check(CU.cuCtxSetCurrent(context))
    reset()
    said["launched"] += [by_itself(stream.value, watch.word), by_itself(stream.value, None)]
    said["by itself"] = result()
    status = shim.get_graph()
    said["same"] = status == shim.get_graph(last.value) and status.exec == last.value
    said["status"] = [status.state.name, status.nodes, status.streams, status.own_us, status.rewritten_us, status.text]
    said["gone"] = shim.get_graph(12345) is None
    said["kept"] = [shim.keep_graph(12345), shim.keep_graph(), shim.get_graph().state.name]
    said["parts"] = parts()
    watches = [shim.MemoryWatch([]), shim.MemoryWatch([states[1].value + 8, states[2].value, 0]), shim.MemoryWatch([states[0].value]),
               shim.MemoryWatch([4711])]

    def watched():
        return [bool(each) for each in watches]

    said["watched"] = [watched()]
    watches[2].close()
    for state in states:
        check(CU.cuMemFree_v2(state))
        said["watched"].append(watched())
    said["launched"].append(by_itself(stream.value, watch.word))
    watch.close()
    said["launched"].append(by_itself(stream.value, watch.word))
    watches[1].close()
    watches[1].close()
    spare = made(CU.cuMemAlloc_v2, ADDRESS, size)
    said["rehearsed"] = rehearsed(lambda on: launch(advance, on, spare, spare, count), stream)
    said["settled"] = settled(stream, device)
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1])
