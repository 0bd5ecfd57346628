"""Farrier fits deep-learning models to the hardware they run on."""
