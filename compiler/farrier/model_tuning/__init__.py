"""Tuning of a complete model: variants of it are measured against each other on the target
device.
"""
