"""Eager inference of a torchvision network with fixed random weights, batch 1."""

import torch
import torchvision

import stepped
import torch_common

NETWORKS = {"resnet50": (torchvision.models.resnet50, 224, {}),
            "inception_v3": (torchvision.models.inception_v3, 299, {"aux_logits": True, "init_weights": False})}


def make(name, seed):
    device = torch_common.start(seed)
    network, size, options = NETWORKS[name]
    model = network(weights=None, **options).to(device).eval()
    image = torch_common.images(seed, 1, size, device)
    result = None

    @torch.inference_mode()
    def step():
        nonlocal result
        result = model(image)

    return step, lambda: torch_common.to_host(result), torch.cuda.synchronize


stepped.serve(make, torch_common.facts, NETWORKS)
