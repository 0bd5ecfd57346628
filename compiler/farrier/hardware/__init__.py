"""Accelerators of one's own as hardware: models on them, checked and explored."""
