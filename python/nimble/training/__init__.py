"""Prepares modules that train: a forward and a backward as graphs, with one autograd function between them."""
