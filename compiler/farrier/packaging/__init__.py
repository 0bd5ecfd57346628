"""The end of a compilation: verify the model on its device, and package it."""
