"""One training step of a small convolutional network with dropout: forward, backward, and an optimizer's update.

The digest covers the loss and every parameter, so one wrong bit in one step shows in all that follow.
"""

import torch
from torch import nn

import stepped
import torch_common

OPTIMIZERS = {"sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
              "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.001)}


def network():
    # Strides instead of max pooling, whose backward pass adds in varying order.
    return nn.Sequential(nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Dropout(0.25),
                         nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(),
                         nn.Linear(64 * 8 * 8, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))


def make(name, seed):
    device = torch_common.start(seed)
    model = network().to(device).train()
    optimizer = OPTIMIZERS[name](model.parameters())
    image = torch_common.images(seed, 32, 32, device)
    label = (torch.arange(32) % 10).to(device)
    loss = None

    def step():
        nonlocal loss
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(image), label)
        loss.backward()
        optimizer.step()

    return step, lambda: torch_common.to_host(loss, *model.parameters()), torch.cuda.synchronize


stepped.serve(make, torch_common.facts, OPTIMIZERS)
