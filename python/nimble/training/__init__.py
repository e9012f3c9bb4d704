"""Forwards and backwards as graphs, with one node of autograd between them."""
