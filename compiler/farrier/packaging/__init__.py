"""The last stage of a compilation: verify the model on its device, and package it as an
artifact.
"""
