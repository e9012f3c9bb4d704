"""Functions of torch.compile as graphs of ours."""
