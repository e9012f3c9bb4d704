"""One network's inference at batch 1 in one way, in a separate process: prints times and comparisons, as JSON.

Usage: inference.py NETWORK WAY [--prepare-only] [--wait]    (a network of networks.py, a way of ways.py)

Ways of Nimble need `python -m nimble run`. Each way uses one input in the same memory repeatedly, so that a call of a graph
is its launch alone. --prepare-only leaves torch.compile's output in its caches. --wait has it say that it is ready once only
the timed GPU work remains, and wait for a line on stdin. scripts/pytorch calls this. """

import json
import sys
import time

import measure
import networks
import torch
import ways

WARM = 3  # calls until nothing new happens, even for torch.compile, which makes graphs at the second one
PROFILED = 6  # TorchScript profiles its first calls


class Prepared:
    """A prepared network: call() runs it on `data`; `output` holds the result, None where call() returns it. `base`: the
    result that it must equal to the bit, None where the kernels differ. `notes` go into the results."""

    def __init__(self, call, data, output=None, base=None, notes=None):
        self.call, self.data, self.output, self.base, self.notes = call, data, output, base, notes or {}

    def result(self):
        returned = self.call()
        return (returned if self.output is None else self.output).clone()


def no_gradients(way):
    """Nimble works in the first of these modes, and torch.compile's kernels there must be the same with it and without."""
    return torch.no_grad() if way.nimble or way.mode else torch.inference_mode()


def torchscript(module, data):
    script = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(module, data, check_trace=False)))
    for _ in range(PROFILED):
        script(data)
    return script


def graph(module, data):
    """As in PyTorch's documentation."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM):
            module(data)
    torch.cuda.current_stream().wait_stream(stream)
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        output = module(data)
    return Prepared(made.replay, data, output, module)


def compile_in_place(module, way):
    """Compiles the module's calls: its forward() itself stays eager. Under Nimble with the options of
    docs/howto/unchanged-script.md."""
    if way.nimble:
        import torch._inductor

        module.compile(options={**torch._inductor.list_mode_options(way.mode), **ways.MEMORY_OF_ITS_OWN})
    else:
        module.compile(mode=way.mode)


def compiled(module, data, way):
    compile_in_place(module, way)
    for _ in range(WARM):
        module(data)
    return module


def nimble(module, data, multi_stream):
    from nimble import Nimble

    model = Nimble(module, static_outputs=True).prepare(data, use_multi_stream=multi_stream)
    (own,), _ = model.static_inputs(data)
    return Prepared(lambda: model(own), own, base=module, notes=measure.graphs(model))


def compile_for(way, module, data):
    """The compiled module, or the module. Nothing here is decided by GPU timing, so other processes may use the GPU
    too."""
    if way.mode:
        return compiled(module, data, way)
    return torchscript(module, data) if way.name == "torchscript" else module


def prepare(way, module, callee, data):
    """`callee`: of compile_for()."""
    if way.name == "graph":
        return graph(module, data)
    if way.nimble:
        return nimble(module, data, way.name != "nimble-one")
    return Prepared(lambda: callee(data), data, base=module if way.name == "eager" else None)


def compare(module, prepared, inputs):
    """Compares the results of other inputs with eager's, and with those that they must equal."""
    found, eager, base = [], [], []
    for data in inputs:
        eager.append(module.forward(data).clone())
        if prepared.base is not None:
            base.append(prepared.base(data).clone())
        prepared.data.copy_(data)
        found.append(prepared.result())
    if not all(bool(torch.isfinite(one).all()) for one in eager) or torch.equal(eager[0], eager[-1]):
        raise RuntimeError("the outputs prove nothing: they are not finite, or the same for different inputs")
    difference = max(float((a - b).abs().max()) for a, b in zip(found, eager))
    result = {"difference": difference, "relative_difference": difference / max(float(b.abs().max()) for b in eager),
              "digest": measure.digest(found), "eager_digest": measure.digest(eager)}
    if base:
        result["same_bits"] = all(torch.equal(a, b) for a, b in zip(found, base))
    return result


def run(name, way, gpu, prepare_only=False, ready=lambda: None):
    module, inputs = networks.inference(name, gpu.type)
    data = inputs[0].clone()
    with no_gradients(way):
        for _ in range(WARM):
            module(data)
        memory = measure.Memory(gpu)
        begin = time.perf_counter()
        callee = compile_for(way, module, data)
        gpu.synchronize()
        compiling = time.perf_counter() - begin
        if prepare_only:
            return {"prepare_s": compiling}
        ready()
        memory.begin()
        begin = time.perf_counter()
        prepared = prepare(way, module, callee, data)
        gpu.synchronize()
        preparing = time.perf_counter() - begin
        result = {"prepare_s": compiling + preparing, "compile_s": compiling, **prepared.notes}
        result |= measure.all_times(gpu, prepared.call)
        result["memory_mib"] = memory.end()
        result |= compare(module, prepared, inputs)
    return result | {"torch": torch.__version__}


def main(words):
    name, way = words[0], ways.way("inference", words[1])
    print(json.dumps(run(name, way, measure.Gpu(), **measure.options(words[2:]))))


if __name__ == "__main__":
    main(sys.argv[1:])
