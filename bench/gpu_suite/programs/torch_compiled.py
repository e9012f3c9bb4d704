"""torch.compile of a small transformer layer and head: kernels generated at run time, through Triton."""

import torch
from torch import nn

import stepped
import torch_common

MODES = {"default": "default", "reduce-overhead": "reduce-overhead"}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


def make(mode, seed):
    device = torch_common.start(seed)
    model = nn.Sequential(Block(256), Block(256), nn.Softmax(dim=-1)).to(device).eval()
    compiled = torch.compile(model, mode=MODES[mode])
    data = torch.randn(64, 256, device=device)
    result = None

    @torch.inference_mode()
    def step():
        nonlocal result
        torch.compiler.cudagraph_mark_step_begin()  # the last result may be overwritten
        result = compiled(data)

    return step, lambda: torch_common.to_host(result), torch.cuda.synchronize


stepped.serve(make, torch_common.facts, MODES)
