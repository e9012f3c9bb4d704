"""The networks of the table, with random weights, which do not matter to its times."""

SIDES = {"inception_v3": 299, "efficientnet_b5": 456, "nasnetalarge": 331}  # others: 224
INFERENCE = ["resnet50", "resnet101", "inception_v3", "googlenet", "mobilenet_v2", "efficientnet_b0", "efficientnet_b5",
             "nasnetalarge", "encoder"]


def inference(name):
    """A module on the GPU and one input of batch 1. Sets PyTorch up so that each process runs the same kernels."""
    import torch

    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.allow_tf32 = False
    if name == "encoder":  # of the shape of BERT-base
        layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, activation="gelu")
        module, data = torch.nn.TransformerEncoder(layer, 12), torch.randn(1, 128, 768)
    else:
        side = SIDES.get(name, 224)
        data = torch.randn(1, 3, side, side)
        if name == "nasnetalarge":
            import timm

            module = timm.create_model(name, pretrained=False)
        else:
            import torchvision

            options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
            module = getattr(torchvision.models, name)(weights=None, **options)
    return module.cuda().eval(), data.cuda()
