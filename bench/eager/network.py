"""A network in eager PyTorch, called again and again: prints what a call takes and a digest of the output, as JSON.

Usage: network.py NAME CALLS    (a name of torchvision.models, or `encoder`)
"""

import hashlib
import json
import sys
import time

import torch


def network(name):
    """The network and an input of batch 1."""
    if name == "encoder":
        layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, activation="gelu")
        return torch.nn.TransformerEncoder(layer, 4), torch.randn(1, 128, 768)
    import torchvision

    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    side = 299 if name == "inception_v3" else 224
    return getattr(torchvision.models, name)(weights=None, **options), torch.randn(1, 3, side, side)


def main(name, calls):
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.allow_tf32 = False
    module, data = network(name)
    module, data = module.cuda().eval(), data.cuda()
    times = []
    with torch.inference_mode():
        for call in range(3 + calls):
            begin = time.perf_counter()
            output = module(data)
            torch.cuda.synchronize()
            if call >= 3:
                times.append(time.perf_counter() - begin)
    times.sort()
    digest = hashlib.sha256(output.cpu().numpy().tobytes()).hexdigest()
    print(json.dumps({"ms": times[len(times) // 2] * 1e3, "p90_ms": times[len(times) * 9 // 10] * 1e3, "digest": digest,
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
