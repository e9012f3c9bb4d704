"""Makes CUDA graphs of functions of torch.compile."""
