"""Prepares modules that train: a forward and a backward as graphs, with one autograd function between them.

training.py is the way in. Gradients: gradient_paths.py says which there are, backward_replays.py replays their graphs, copies_out.py
copies them to whom they belong.
"""
