"""One library of NVIDIA's through torch: cublas (matrix products), cufft (transforms) or cudnn (convolutions)."""

import torch

import stepped
import torch_common


def cublas(device):
    a = torch.randn(512, 768, device=device)
    b = torch.randn(768, 640, device=device)
    batch = torch.randn(8, 128, 128, device=device)
    bias = torch.randn(640, device=device)
    half = torch.randn(1024, 1024, device=device).bfloat16()

    def step():
        return [a @ b, torch.addmm(bias, a, b), torch.bmm(batch, batch), (half @ half).float(), torch.mv(a, a[0])]
    return step


def cufft(device):
    line = torch.randn(64, 4096, device=device)
    plane = torch.randn(8, 256, 240, device=device)

    def step():
        spectrum = torch.fft.rfft(line)
        back = torch.fft.irfft(spectrum, n=4096)
        return [torch.view_as_real(spectrum), back, torch.view_as_real(torch.fft.fft2(plane))]
    return step


def cudnn(device):
    image = torch.randn(8, 32, 56, 56, device=device)
    weight = torch.randn(64, 32, 3, 3, device=device)
    depthwise = torch.randn(32, 1, 3, 3, device=device)
    norm = torch.nn.BatchNorm2d(64).to(device).eval()

    def step():
        wide = torch.nn.functional.conv2d(image, weight, padding=1)
        single = torch.nn.functional.conv2d(image, depthwise, padding=1, groups=32)
        half = torch.nn.functional.conv2d(image.half(), weight.half(), stride=2)
        return [norm(wide), single, half.float()]
    return step


LIBRARIES = {"cublas": cublas, "cufft": cufft, "cudnn": cudnn}


def make(name, seed):
    device = torch_common.start(seed)
    library = LIBRARIES[name](device)
    results = []

    @torch.inference_mode()
    def step():
        results[:] = library()

    return step, lambda: torch_common.to_host(*results), torch.cuda.synchronize


stepped.serve(make, torch_common.facts, LIBRARIES)
