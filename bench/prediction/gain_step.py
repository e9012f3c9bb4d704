"""gain_step.py MODEL eager|graphs: the inference step that bench/prediction/gains.py records, and measures as graphs.

eager runs it 13 times. graphs prepares it with Nimble and prints JSON: microseconds of its graph in the program's order, and of the
chosen one, and of calls back to back, served and eager. Weights are random; batch 1. Needs a GPU, PyTorch, timm and transformers."""

import json
import sys

import torch

STEPS = 13
CALLS = 60
TOKENS = 128


def bert(transformers):
    return transformers.BertModel(transformers.BertConfig()), {"input_ids": (30522, TOKENS)}


def gpt2(transformers):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False)), {"input_ids": (50257, TOKENS)}


def llama(transformers):
    config = transformers.LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16,
                                      use_cache=False)
    return transformers.LlamaForCausalLM(config), {"input_ids": (32000, TOKENS)}


def t5(transformers):
    return (transformers.T5ForConditionalGeneration(transformers.T5Config(use_cache=False)),
            {"input_ids": (32128, TOKENS // 2), "decoder_input_ids": (32128, TOKENS // 4)})


OF_TRANSFORMERS = {model.__name__: model for model in (bert, gpt2, llama, t5)}
OF_TIMM = ["resnet50", "inception_v3", "densenet121", "ghostnet_100", "res2net50_26w_4s", "nasnetalarge"]
MODELS = [*OF_TIMM, *OF_TRANSFORMERS]


def make(name):
    """A module in evaluation mode, and its keyword arguments."""
    torch.manual_seed(0)
    if name in OF_TRANSFORMERS:
        import transformers
        module, tokens = OF_TRANSFORMERS[name](transformers)
        return (module.bfloat16().cuda().eval(),
                {key: torch.randint(0, most, (1, length), device="cuda") for key, (most, length) in tokens.items()})
    import timm
    module = timm.create_model(name).cuda().eval()
    return module, {"x": torch.randn(1, *module.default_cfg["input_size"], device="cuda")}


def back_to_back_us(function, arguments):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(CALLS):
        function(**arguments)
    end.record()
    torch.cuda.synchronize()
    return 1000 * begin.elapsed_time(end) / CALLS


def main():
    name, way = sys.argv[1:]
    module, arguments = make(name)
    with torch.no_grad():
        for _ in range(STEPS):
            expected = module(**arguments)
        torch.cuda.synchronize()
        if way == "eager":
            return
        eager_us = back_to_back_us(module, arguments)
        import nimble
        served = nimble.Nimble(module).prepare(**arguments)
        report = served.report()[0]
        found = served(**arguments)
        first = [x if isinstance(x, torch.Tensor) else x[0] for x in (expected, found)]
        print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "equal": torch.equal(*first),
                          "graph_us": report.own_us, "streams_us": report.rewritten_us, "streams": report.streams,
                          "calls_us": back_to_back_us(served, arguments),
                          "eager_us": eager_us}))


if __name__ == "__main__":
    main()
