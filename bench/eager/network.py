"""A network in eager PyTorch, called repeatedly: prints the time of a call and a digest of the output, as JSON.

Usage: network.py NAME CALLS    (a name of torchvision.models, or `encoder`)
"""

import hashlib
import json
import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "pytorch"))

import networks  # noqa: E402


def main(name, calls):
    networks.set_up()
    module = networks.build(name, **({"layers": 4} if name == "encoder" else {})).cuda().eval()
    data = torch.randn(networks.shape(name)).cuda()
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
