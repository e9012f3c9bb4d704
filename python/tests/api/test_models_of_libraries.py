"""Models of transformers and timm: inference, training and whole steps have the same results as without Nimble.

Small ones, with random weights, on the CPU. They exercise what such libraries do in Python: outputs of their own classes, dictionaries
that make things, hooks, caches, decorators. scripts/torch_releases installs both.
"""

import copy

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch.utils import _pytree  # noqa: E402
import dynamo_tools  # noqa: E402
import nimble  # noqa: E402
from nimble import NimbleError  # noqa: E402
from nimble.graphs.differences import same_bytes  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402

SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=100)
IMAGES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8)


def words(count=9):
    return torch.randint(1, 99, (2, count))


def pictures(side=32):
    return torch.randn(2, 3, side, side)


def transformers(model, config, sizes, **arguments):
    """`arguments`: functions without parameters, or values passed each time."""
    def make():
        library = pytest.importorskip("transformers")
        return getattr(library, model)(getattr(library, config)(**sizes)), lambda: {
            name: value() if callable(value) else value for name, value in arguments.items()}
    return make


def timm(name, side=64, **options):
    def make():
        return pytest.importorskip("timm").create_model(name, pretrained=False, num_classes=5, **options), lambda: {"x": pictures(side)}
    return make


MODELS = {
    "bert": transformers("BertForSequenceClassification", "BertConfig", SIZES, input_ids=words, labels=lambda: torch.randint(2, (2,)),
                         attention_mask=lambda: torch.ones(2, 9, dtype=torch.long)),
    "gpt2": transformers("GPT2LMHeadModel", "GPT2Config", dict(n_embd=32, n_layer=2, n_head=4, vocab_size=100, n_positions=64,
                                                              bos_token_id=1, eos_token_id=2), input_ids=words, labels=words, use_cache=False),
    "llama": transformers("LlamaForCausalLM", "LlamaConfig", {**SIZES, "num_key_value_heads": 2}, input_ids=words, labels=words,
                          use_cache=False),
    "mixtral": transformers("MixtralForCausalLM", "MixtralConfig", {**SIZES, "num_key_value_heads": 2, "num_local_experts": 4},
                            input_ids=words, use_cache=False),
    "t5": transformers("T5ForConditionalGeneration", "T5Config", dict(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=100,
                                                                      decoder_start_token_id=0), input_ids=words, labels=words, use_cache=False),
    "vit": transformers("ViTForImageClassification", "ViTConfig", IMAGES, pixel_values=pictures, labels=lambda: torch.randint(2, (2,))),
    "mamba": transformers("MambaForCausalLM", "MambaConfig", dict(hidden_size=32, num_hidden_layers=2, vocab_size=100, state_size=4),
                          input_ids=words, use_cache=False),
    "convnext": timm("convnext_atto"),
    "swin": timm("swin_tiny_patch4_window7_224", img_size=64, window_size=4, embed_dim=24, depths=(1, 1, 1, 1), num_heads=(1, 2, 4, 8)),
    "mixnet": timm("tf_mixnet_s"),
    "edgenext": timm("edgenext_xx_small"),
}


class Relaxed(ReplayingCapture):
    """A backend that captures in whatever way it is asked to."""

    def capture(self, work, device, multi_stream, relaxed, beside=None):
        return super().capture(work, device, multi_stream, True, beside)

    def capture_training(self, work, device, multi_stream, relaxed):
        return super().capture_training(work, device, multi_stream, True)

    def capture_copies(self, copies, device, relaxed, beside):
        return super().capture_copies(copies, device, True, beside)


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(0)
    module, data = MODELS[request.param]()
    return module, copy.deepcopy(module), data


def tensors(outputs):
    return [leaf for leaf in _pytree.tree_flatten(dict(outputs) if isinstance(outputs, dict) else outputs)[0] if isinstance(leaf, torch.Tensor)]


def loss_of(outputs):
    loss = outputs.get("loss") if isinstance(outputs, dict) else None
    return loss if loss is not None else sum(t.float().pow(2).mean() for t in tensors(outputs) if t.requires_grad)


def are_same(one, other):
    return len(one) == len(other) > 0 and all(map(same_bytes, one, other))


def left_in(module):
    return [*module.state_dict().values(), *(p.grad for p in module.parameters() if p.grad is not None)]


def test_inference(model):
    module, twin, data = model
    served = nimble.Nimble(module.eval(), backend=Relaxed())
    twin.eval()
    with torch.no_grad():
        for _ in range(3):
            arguments = data()
            mine, its = served(**arguments), twin(**arguments)
            assert type(mine) is type(its) and are_same(tensors(mine), tensors(its))
    (report,) = served.report()
    assert report.kind == "inference" and report.state == "rewritten"


class Asks(torch.nn.Module):
    """A model that does something else while a stream captures, besides what its library does then."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **arguments):
        return self.model(**arguments), torch.ones(2) * torch.cuda.is_current_stream_capturing()


def test_inference_with_eagers_answer(model, monkeypatch):
    """The library takes its eager way, and reads on the host whether a batch has several sequences in a row, or padding."""
    module, twin, data = model
    backend = Relaxed()
    backend.refuses_reads = True
    monkeypatch.setattr(torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", lambda: backend.capturing)
    served = nimble.Nimble(Asks(module).eval(), backend=backend)
    twin.eval()
    with torch.no_grad():
        try:
            served.prepare(**data())
        except nimble.DiffersError:
            arguments = data()
            assert "attention_mask" in arguments  # an input, and its values are read
            return
        for _ in range(3):
            arguments = data()
            (mine, zeros), its = served(**arguments), twin(**arguments)
            assert are_same(tensors(mine), tensors(its)) and not zeros.any()
    (report,) = served.report()
    assert report.as_eager


def test_training(model):
    module, twin, data = model
    served = nimble.Nimble(module.train(), backend=Relaxed())
    for number in range(3):
        arguments, found = data(), []
        for call, each in ((served, module), (twin.train(), twin)):
            each.zero_grad(set_to_none=True)
            torch.manual_seed(number)
            outputs = call(**arguments)
            loss_of(outputs).backward()
            found.append([t.detach().clone() for t in (*tensors(outputs), *left_in(each))])
        assert are_same(*found)
    assert [report.kind for report in served.report()][:2] == ["forward", "backward"]


def test_steps(model):
    module, twin, data = model
    batches, found = [data() for _ in range(6)], []
    for each in (module.train(), twin.train()):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.01, momentum=0.9)

        def train(each=each, optimizer=optimizer, **arguments):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(each(**arguments))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(each.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        step = nimble.step(train, modules=[each], optimizers=[optimizer], backend=Relaxed()) if each is module else train
        torch.manual_seed(1)
        found.append([*(step(**batch).clone() for batch in batches), *left_in(each)])
        if each is module:
            (report,) = step.report()
            assert report.kind == "step" and report.state == "rewritten"
    assert are_same(*found)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("model", ["bert", "llama", "t5", "convnext"], indirect=True)  # compiling takes seconds
def test_by_torch_compile(model, trains, monkeypatch):
    """With the bits of torch.compile's own backends that run the same ops."""
    monkeypatch.setattr("atexit.register", lambda *_: None)
    module, twin, data = model
    torch._dynamo.reset()
    backend = dynamo_tools.compiler()
    served = torch.compile(module.train(trains), backend=backend, options={"training": trains})
    plain = torch.compile(twin.train(trains), backend="aot_eager" if trains else "eager")
    for number in range(9):  # some releases of transformers are traced again for the second
        arguments, found = data(), []
        for call, each in ((served, module), (plain, twin)):
            each.zero_grad(set_to_none=True)
            torch.manual_seed(number)
            with torch.set_grad_enabled(trains):
                outputs = call(**arguments)
            if trains:
                loss_of(outputs).backward()
            found.append([t.detach().clone() for t in (*tensors(outputs), *left_in(each))])
        assert are_same(*found)
    assert dynamo_tools.served(backend) > 0, backend.reports()


@pytest.mark.parametrize("cache", [None, "static"])
def test_generate_by_torch_compile(cache, monkeypatch):
    """A cache that grows is not worth graphs; one of fixed size has one graph for all tokens and prompts."""
    monkeypatch.setattr("atexit.register", lambda *_: None)
    torch.manual_seed(0)
    module, _ = transformers("LlamaForCausalLM", "LlamaConfig", {**SIZES, "num_key_value_heads": 2})()
    twin, backend = copy.deepcopy(module.eval()), dynamo_tools.compiler()
    torch._dynamo.reset()
    module.forward = torch.compile(module.forward, backend=backend)
    options = {"max_new_tokens": 12, "do_sample": False, **({"cache_implementation": cache, "disable_compile": True} if cache else {})}
    for _ in range(3):
        prompt = torch.randint(3, 99, (1, 7))
        assert torch.equal(module.generate(prompt, **options), twin.generate(prompt, **options))
    assert (dynamo_tools.served(backend) > 20) == (cache == "static"), backend.reports()


def test_what_returns_a_cache_says_so():
    torch.manual_seed(0)
    module, data = transformers("LlamaForCausalLM", "LlamaConfig", {**SIZES, "num_key_value_heads": 2}, input_ids=words)()
    with torch.no_grad(), pytest.raises(NimbleError, match="DynamicCache"):
        nimble.Nimble(module.eval(), backend=Relaxed())(**data())
