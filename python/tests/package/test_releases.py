"""The names of PyTorch that the package uses exist in the installed release: many are only reached on a GPU."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
import nimble  # noqa: E402

FILES = sorted(Path(nimble.__file__).parent.rglob("*.py"))


def names_in(path):
    """Dotted names that begin with `torch`; getattr()'s callers handle missing ones themselves."""
    found = set()

    class Names(ast.NodeVisitor):
        def visit_Attribute(self, node):
            parts, inner = [node.attr], node.value
            while isinstance(inner, ast.Attribute):
                parts.append(inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name) and inner.id == "torch":
                found.add(tuple(reversed(parts)))
            else:
                self.generic_visit(node)

        def unless_asked_before(self, node):
            if not any(isinstance(part, ast.Name) and part.id == "hasattr" for part in ast.walk(node.test)):
                self.generic_visit(node)

        visit_If = visit_IfExp = unless_asked_before

    Names().visit(ast.parse(path.read_text()))
    return found


def test_the_end_of_an_allocation_in_a_pool():
    names = [name for name in dir(torch._C) if name.startswith("_cuda_endAllocate")]
    if not names:
        pytest.skip("this PyTorch has no CUDA")
    assert set(names) & {"_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_names(path):
    if not torch.backends.cuda.is_built():
        pytest.skip("this PyTorch has no CUDA")
    for name in names_in(path):
        at = torch
        for i, part in enumerate(name):
            if not hasattr(at, part) and inspect.ismodule(at):
                importlib.import_module(".".join(("torch", *name[:i + 1])))
            assert hasattr(at, part), ".".join(("torch", *name))
            at = getattr(at, part)
