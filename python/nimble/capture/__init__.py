"""Captures work as CUDA graphs on the GPU, and what code asks of a stream that captures."""
