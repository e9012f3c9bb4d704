"""Two networks of searched cells, written from their papers: NASNet-A mobile and DARTS.

NASNet-A (4 @ 1056): Zoph, Vasudevan, Shlens, Le, "Learning Transferable Architectures for Scalable Image Recognition", 2018.
DARTS (second order, ImageNet in the mobile setting): Liu, Simonyan, Yang, "DARTS: Differentiable Architecture Search", 2019.

A cell sees the outputs of the two cells before it. Both networks put a ReLU first in each operation, as their papers do, and
have no auxiliary head: it serves training alone. Modules have no state but their parameters.
"""

import torch
from torch import nn
from torch.nn import functional

NASNET_EPSILON = 1e-3  # of its batch norms


def convolution(inputs, outputs, stride=1, epsilon=1e-5):
    """ReLU, 1x1 convolution, batch norm."""
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs, epsilon))


def separable(inputs, outputs, kernel, stride=1, dilation=1, epsilon=1e-5):
    """ReLU, a depthwise convolution, a 1x1 convolution, batch norm."""
    padding = dilation * (kernel - 1) // 2
    return nn.Sequential(nn.ReLU(),
                         nn.Conv2d(inputs, inputs, kernel, stride, padding, dilation, groups=inputs, bias=False),
                         nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs, epsilon))


def twice(inputs, outputs, kernel, stride=1, epsilon=1e-5):
    """Separable convolutions come twice; the first one strides."""
    return nn.Sequential(separable(inputs, outputs, kernel, stride, epsilon=epsilon),
                         separable(outputs, outputs, kernel, epsilon=epsilon))


class Halved(nn.Module):
    """Halves the side: one half of the channels from the even pixels, the other from the odd ones, so that none is skipped."""

    def __init__(self, inputs, outputs, epsilon=1e-5):
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.odd = nn.Conv2d(inputs, outputs - outputs // 2, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs, epsilon)

    def forward(self, x):
        x = functional.relu(x)
        shifted = functional.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        return self.norm(torch.cat([self.even(x), self.odd(shifted)], 1))


def average(stride=1):
    return nn.AvgPool2d(3, stride, 1, count_include_pad=False)


class NasnetCell(nn.Module):
    """One cell of NASNet-A. `before` and `last` are the channels of the two inputs; `halve_before`: the first one has twice the
    other's side. For the very first cell both inputs are the stem, and the first one is used as it is (before=None)."""

    def __init__(self, before, last, filters, reduces, halve_before):
        super().__init__()
        e = NASNET_EPSILON
        self.reduces = reduces
        self.fit_last = convolution(last, filters, epsilon=e)
        if before is None:
            self.fit_before, width = nn.Identity(), last
        elif halve_before:
            self.fit_before, width = Halved(before, filters, e), filters
        else:
            self.fit_before, width = convolution(before, filters, epsilon=e) if before != filters else nn.Identity(), filters
        if reduces:
            self.last5 = twice(filters, filters, 5, 2, e)
            self.before7a, self.before7b = twice(width, filters, 7, 2, e), twice(width, filters, 7, 2, e)
            self.before5 = twice(width, filters, 5, 2, e)
            self.made3 = twice(filters, filters, 3, 1, e)
            self.largest, self.mean_last, self.mean_made = nn.MaxPool2d(3, 2, 1), average(2), average()
            self.outputs = 4 * filters
        else:
            self.last3, self.last5 = twice(filters, filters, 3, 1, e), twice(filters, filters, 5, 1, e)
            self.before3a, self.before3b = twice(filters, filters, 3, 1, e), twice(filters, filters, 3, 1, e)
            self.before5 = twice(filters, filters, 5, 1, e)
            self.mean = average()
            self.outputs = 6 * filters

    def forward(self, before, last):
        before, last = self.fit_before(before), self.fit_last(last)
        if self.reduces:
            first = self.last5(last) + self.before7a(before)
            second = self.largest(last) + self.before7b(before)
            third = self.mean_last(last) + self.before5(before)
            fourth = self.mean_made(first) + second
            fifth = self.made3(first) + self.largest(last)
            return torch.cat([second, third, fourth, fifth], 1)
        around = self.mean(before)
        return torch.cat([before, self.last3(last) + last, self.before3a(before) + self.last5(last), self.mean(last) + before,
                          around + around, self.before5(before) + self.before3b(before)], 1)


class Nasnet(nn.Module):
    """NASNet-A for ImageNet: `repeats` normal cells at each of three sizes, of which the last one has `penultimate` channels."""

    def __init__(self, repeats=4, penultimate=1056, stem=32, classes=1000):
        super().__init__()
        filters = penultimate // 24
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, 2, bias=False), nn.BatchNorm2d(stem, NASNET_EPSILON))
        plan = [(filters // 4, True), (filters // 2, True)]
        for size in range(3):
            plan += [(filters * 2 ** size, True)] * (size > 0) + [(filters * 2 ** size, False)] * repeats
        self.cells = nn.ModuleList()
        before, last, halve = None, stem, False
        for width, reduces in plan:
            self.cells.append(NasnetCell(before, last, width, reduces, halve))
            before, last, halve = last, self.cells[-1].outputs, reduces
        self.classify = nn.Linear(last, classes)

    def forward(self, x):
        before = last = self.stem(x)
        for cell in self.cells:
            before, last = last, cell(before, last)
        return self.classify(functional.relu(last).mean((2, 3)))


# Two operations for each of four nodes, and each one's input state: 0 and 1 are the cell's inputs, others the nodes.
DARTS_NORMAL = [("separable 3", 0), ("separable 3", 1), ("separable 3", 0), ("separable 3", 1), ("separable 3", 1), ("skip", 0),
                ("skip", 0), ("dilated 3", 2)]
DARTS_REDUCTION = [("largest 3", 0), ("largest 3", 1), ("skip", 2), ("largest 3", 1), ("largest 3", 0), ("skip", 2), ("skip", 2),
                   ("largest 3", 1)]


def darts_operation(name, width, stride):
    if name == "skip":
        return Halved(width, width) if stride == 2 else nn.Identity()
    if name == "largest 3":
        return nn.MaxPool2d(3, stride, 1)
    if name == "dilated 3":
        return separable(width, width, 3, stride, dilation=2)
    return twice(width, width, 3, stride)


class DartsCell(nn.Module):
    def __init__(self, before, last, width, reduces, halve_before):
        super().__init__()
        self.fit_before = Halved(before, width) if halve_before else convolution(before, width)
        self.fit_last = convolution(last, width)
        plan = DARTS_REDUCTION if reduces else DARTS_NORMAL
        self.sources = [source for _, source in plan]
        self.operations = nn.ModuleList(darts_operation(name, width, 2 if reduces and source < 2 else 1) for name, source in plan)
        self.outputs = 4 * width

    def forward(self, before, last):
        states = [self.fit_before(before), self.fit_last(last)]
        made = list(zip(self.operations, self.sources))
        for (one, a), (other, b) in zip(made[::2], made[1::2]):
            states.append(one(states[a]) + other(states[b]))
        return torch.cat(states[2:], 1)


class Darts(nn.Module):
    """DARTS for ImageNet in the mobile setting: cells of which two, at a third and at two thirds, halve the side."""

    def __init__(self, width=48, layers=14, classes=1000):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, width // 2, 3, 2, 1, bias=False), nn.BatchNorm2d(width // 2), nn.ReLU(),
                                   nn.Conv2d(width // 2, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width))
        self.second = nn.Sequential(nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width))
        self.cells = nn.ModuleList()
        before, last, halve = width, width, True
        for layer in range(layers):
            reduces = layer in (layers // 3, 2 * layers // 3)
            width *= 2 if reduces else 1
            self.cells.append(DartsCell(before, last, width, reduces, halve))
            before, last, halve = last, self.cells[-1].outputs, reduces
        self.classify = nn.Linear(last, classes)

    def forward(self, x):
        before = self.first(x)
        last = self.second(before)
        for cell in self.cells:
            before, last = last, cell(before, last)
        return self.classify(last.mean((2, 3)))
