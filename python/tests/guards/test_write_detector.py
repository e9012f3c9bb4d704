"""WriteDetector: writes to any element of any tensor are seen, and nothing else."""

import random

import pytest

torch = pytest.importorskip("torch")

from nimble.guards import write_detector  # noqa: E402
from nimble.guards.write_detector import WriteDetector  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool)


def tensors(seed):
    """Of several types and sizes, some of them parts of others, some at addresses that are no multiple of 8."""
    of = random.Random(seed)
    made = []
    for _ in range(40):
        size = of.choice((0, 1, 3, 8, 17, 64, 200))
        memory = torch.randint(0, 2, (size + 3,)).to(of.choice(DTYPES))
        made.append(memory[of.randrange(3):] if of.random() < 0.3 else memory)
    return made


@pytest.mark.parametrize("chunk", (16, 100, 1 << 20))
def test_a_write_to_any_element_is_seen(monkeypatch, chunk):
    monkeypatch.setattr(write_detector, "_CHUNK", chunk)
    for seed in range(40):
        there = tensors(seed)
        detector = WriteDetector(there)
        assert not detector.any()
        of = random.Random(seed)
        written = of.choice([tensor for tensor in there if tensor.numel() > 0])
        at = of.randrange(written.numel())
        written.data[at] = written[at] == 0  # by a way that no version counts
        assert detector.any(), (seed, at)


def test_an_exchange_is_seen():
    one, other = torch.arange(8.0), torch.arange(8.0, 16.0)
    detector = WriteDetector([one, other])
    kept = one.clone()
    one.data.copy_(other)
    other.data.copy_(kept)
    assert detector.any()


def test_the_same_values_written_without_a_version_are_no_write():
    tensor = torch.arange(8.0)
    detector = WriteDetector([tensor])
    tensor.data.copy_(tensor.clone())
    assert not detector.any()
