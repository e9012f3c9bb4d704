"""torch under CUDA graphs: resnet50 captured once with torch.cuda.CUDAGraph, replayed each step on fresh input."""

import torch
import torchvision

import stepped
import torch_common


def make(seed):
    device = torch_common.start(seed)
    model = torchvision.models.resnet50(weights=None).to(device).eval()
    image = torch_common.images(seed, 1, 224, device)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(image)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            result = model(image)

    @torch.inference_mode()
    def step():
        image.mul_(-1.0)
        graph.replay()

    return step, lambda: torch_common.to_host(result), torch.cuda.synchronize


stepped.serve(make, torch_common.facts)
