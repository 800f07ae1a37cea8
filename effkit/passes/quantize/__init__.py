"""Passes that store weights, and compute on activations, in fewer bits."""
