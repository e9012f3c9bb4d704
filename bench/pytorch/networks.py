"""The networks of the tables, with random weights.

Batch norms get the statistics of a few random images: with their initial ones, a deep network's output hardly depends
on its input, and comparing outputs would prove nothing. PyTorch is imported when a network is made. """

SIDES = {"inception_v3": 299, "efficientnet_b5": 456, "nasnetalarge": 331}  # others: 224
INFERENCE = ["resnet50", "resnet101", "inception_v3", "googlenet", "mobilenet_v2", "efficientnet_b0", "efficientnet_b5",
             "nasnetamobile", "nasnetalarge", "darts", "encoder"]
TRAINING = ["mobilenet_v2", "efficientnet_b0", "resnet50"]
BATCHES = [32, 64, 128]
CLASSES = 10  # of CIFAR-10, whose images are 3x32x32
SEEN = 4  # images for the batch norms' statistics


def set_up():
    """Makes each process run the same kernels."""
    import torch

    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    if hasattr(torch.utils, "deterministic"):  # older releases fill nothing
        torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.allow_tf32 = False


def build(name, **options):
    """The plain module, on the CPU, in training mode."""
    import torch

    if name == "encoder":
        import encoder

        return encoder.Encoder(**options)
    if name in ("nasnetamobile", "darts"):
        import cells

        return cells.Nasnet(**options) if name == "nasnetamobile" else cells.Darts(**options)
    if name == "nasnetalarge":
        import timm

        return timm.create_model(name, pretrained=False, **options)
    import torchvision

    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    return getattr(torchvision.models, name)(weights=None, **options)


def shape(name, batch=1):
    side = SIDES.get(name, 224)
    return (batch, 128, 768) if name == "encoder" else (batch, 3, side, side)


def see(module, images):
    """Gives the batch norms the statistics of these images."""
    import torch

    norms = [child for child in module.modules() if isinstance(child, torch.nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # the mean over all inputs, from here on
        norm.reset_running_stats()
        norm.train()
    with torch.no_grad():
        module(images)
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
        norm.eval()


def inference(name, device="cuda", inputs=3):
    """A module in evaluation mode, and different inputs of batch 1."""
    import torch

    set_up()
    module = build(name)
    module.to(device).eval()
    see(module, torch.randn(shape(name, SEEN), device=device))
    return module, [torch.randn(shape(name), device=device) for _ in range(inputs)]


def training(name, batch, device="cuda", batches=4):
    """A module in training mode, and batches of images and labels. torchvision's networks as they are: their stems are
    made for ImageNet, so that little of an image of 32x32 is left after them."""
    import torch

    set_up()
    module = build(name, num_classes=CLASSES)
    module.to(device).train()
    return module, [(torch.randn(batch, 3, 32, 32, device=device), torch.randint(CLASSES, (batch,), device=device))
                    for _ in range(batches)]
