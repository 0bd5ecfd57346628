"""The simulator of an accelerator: what its programs compute, and the cycles that they take."""
