"""A small network with branches: the time of a call, eagerly, or with `nimble` by torch.compile(backend="nimble"). Prints JSON."""

import json, statistics, sys, time
import torch

class Block(torch.nn.Module):
    """Four branches over the same input, concatenated."""

    def __init__(self, channels, width):
        super().__init__()
        def conv(inputs, size):
            return torch.nn.Sequential(torch.nn.Conv2d(inputs, width, size, padding=size // 2), torch.nn.ReLU())
        self.branches = torch.nn.ModuleList([
            conv(channels, 1),
            torch.nn.Sequential(conv(channels, 1), conv(width, 3)),
            torch.nn.Sequential(conv(channels, 1), conv(width, 5)),
            torch.nn.Sequential(torch.nn.MaxPool2d(3, 1, 1), conv(channels, 1))])

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)

def milliseconds(model, x):
    rounds = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(50):
            model(x)
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - begin) * 1000 / 50)
    return statistics.median(rounds)

torch.manual_seed(0)
module = torch.nn.Sequential(Block(3, 32), *(Block(128, 32) for _ in range(5))).cuda().eval()
inputs = [torch.randn(1, 3, 28, 28, device="cuda") for _ in range(8)]
with torch.no_grad():
    if sys.argv[1:] == ["nimble"]:
        import nimble
        model = torch.compile(module, backend="nimble")
        equal = all(torch.equal(model(x), module(x)) for x in inputs)
        taken = milliseconds(model, inputs[0])
        equal = equal and all(torch.equal(model(x), module(x)) for x in inputs)
        print(json.dumps({"ms": taken, "equal": equal, "served": sum(each.served for each in nimble.report())}))
    else:
        for x in inputs:
            module(x)
        print(json.dumps({"ms": milliseconds(module, inputs[0])}))
