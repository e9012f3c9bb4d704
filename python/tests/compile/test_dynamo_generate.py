"""generate() of transformers with torch.compile(backend="nimble") and its default cache, which grows: tokens are those without, and a few
captures serve all lengths. Small models with random weights; the GPU is a fake."""

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
transformers = pytest.importorskip("transformers")
from dynamo_tools import compiler, pieces_of  # noqa: E402
from nimble.compile import dynamo_backend  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402

TOKENS = {"llama": 64, "gpt2": 40, "t5": 24}
LAYERS = 2
MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=256)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=32, n_layer=LAYERS, n_head=4, vocab_size=128, n_positions=256, bos_token_id=0, eos_token_id=0)),
    "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(
        d_model=32, d_kv=8, d_ff=64, num_layers=LAYERS, num_heads=4, vocab_size=128, decoder_start_token_id=0)),
}
ATTENTIONS = {"llama": LAYERS, "gpt2": LAYERS, "t5": 2 * LAYERS}


@pytest.fixture
def backend(monkeypatch):
    monkeypatch.setattr("atexit.register", lambda *_: None)
    torch._dynamo.reset()
    yield ReplayingCapture()
    torch._dynamo.reset()


def make(name):
    torch.manual_seed(0)
    return MODELS[name]().eval()


def generate(model, length, tokens=16, **options):
    torch.manual_seed(length)
    prompt = torch.randint(2, 127, (1, length))
    return model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=1, **options)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_default_cache(backend, name):
    model, nimble = make(name), compiler(backend)
    lengths = (8, 13, 5)
    tokens = TOKENS[name]
    wanted = [generate(model, length, tokens) for length in lengths]
    model.forward = torch.compile(model.forward, backend=nimble)
    captures = []
    for length, wanted_tokens in zip(lengths, wanted):
        assert torch.equal(generate(model, length, tokens), wanted_tokens)
        captures.append(backend.captures)
    found = pieces_of(nimble)
    assert max(piece.served for piece in found) > tokens - 8
    assert captures[0] <= ATTENTIONS[name] + 1, "of a step: a piece more than it has attentions"
    assert captures[-1] == sum(len(report.graphs) for report in nimble.reports()), "none twice"
    if name != "t5":  # the length of its encoder's output changes, too, from the second prompt on
        assert captures[0] == captures[-1] and max(piece.served for piece in found) > 3 * (tokens - 8)


def test_a_compile_config(backend, monkeypatch):
    """transformers compiles by itself with caches of one size only: a graph of all, then."""
    monkeypatch.setattr(dynamo_backend, "_compiler", compiler(backend))
    model = make("llama")
    config = transformers.generation.CompileConfig(backend=dynamo_backend.nimble)
    config._compile_all_devices = True  # on the CPU, too
    wanted = generate(model, 8)
    assert torch.equal(generate(model, 8, compile_config=config), wanted) and backend.captures == 0
    for _ in range(2):
        assert torch.equal(generate(model, 8, compile_config=config, cache_implementation="static"), wanted)
    assert 0 < backend.captures <= 2 and not pieces_of(dynamo_backend._compiler)
