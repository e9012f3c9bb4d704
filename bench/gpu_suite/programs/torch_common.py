"""Shared by the torch programs: fixes everything that could make two runs differ before anything else happens."""

import numpy
import torch


def start(seed):
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # it would launch kernels that a user's program does not
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.device("cuda", 0)


def images(seed, count, size, device):
    """Images of noise, the same on every machine."""
    noise = numpy.random.default_rng(seed).standard_normal((count, 3, size, size), dtype=numpy.float32)
    return torch.from_numpy(noise).to(device)


def to_host(*tensors):
    return [tensor.detach().cpu().numpy() for tensor in tensors]


def facts(*_):
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "allocator": torch.cuda.get_allocator_backend()}
