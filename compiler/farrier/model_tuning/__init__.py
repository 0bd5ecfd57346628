"""Tuning of a whole model: its variants, measured side by side where they run."""
