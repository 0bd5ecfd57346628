"""Farrier measured against what a user would pick instead; runs from a checkout."""
