"""The ways to run a network: the columns of the tables. No PyTorch here."""

from typing import NamedTuple, Optional


class Way(NamedTuple):
    """`nimble`: runs under `python -m nimble run`. `mode`: torch.compile's, where its kernels are used. `same`: the way whose
    bits its results must have, None for those with different kernels. `is_step`: the whole step is a nimble.step."""

    name: str
    title: str
    nimble: bool = False
    mode: Optional[str] = None
    same: Optional[str] = None
    is_step: bool = False


# torch.compile's options for kernels that Nimble runs concurrently: reusing memory would order its users, and Nimble has its
# own memory plan.
MEMORY_OF_ITS_OWN = {"allow_buffer_reuse": False, "inplace_buffers": False}
BEST = "max-autotune"
BEST_KERNELS = "max-autotune-no-cudagraphs"

INFERENCE = [
    Way("eager", "eager", same="eager"),
    Way("torchscript", "TorchScript"),
    Way("graph", "torch.cuda.graph", same="eager"),
    Way("compile", "torch.compile", mode="default"),
    Way("autotune", "torch.compile max-autotune", mode=BEST),
    Way("nimble-one", "Nimble, one stream", True, same="eager"),
    Way("nimble", "Nimble", True, same="eager"),
    Way("nimble-compile", "Nimble over torch.compile", True, "default", same="compile"),
    Way("nimble-autotune", "Nimble over max-autotune", True, BEST_KERNELS, same="autotune"),
]
TRAINING = [
    Way("eager", "eager", same="eager"),
    Way("torchscript", "TorchScript"),
    Way("callables", "make_graphed_callables", same="eager"),
    Way("graph", "torch.cuda.graph of the step", same="eager"),
    Way("compile", "torch.compile", mode="default"),
    Way("autotune", "torch.compile max-autotune", mode=BEST),
    Way("nimble-one", "Nimble, one stream", True, same="eager"),
    Way("nimble", "Nimble", True, same="eager"),
    Way("nimble-step", "nimble.step", True, same="eager", is_step=True),
    Way("nimble-compile", "Nimble over torch.compile", True, "default", same="compile"),
    Way("nimble-step-compile", "nimble.step over torch.compile", True, "default", same="compile", is_step=True),
]
WAYS = {"inference": INFERENCE, "training": TRAINING}


def way(part, name):
    """Raises KeyError where there is none."""
    return {each.name: each for each in WAYS[part]}[name]
