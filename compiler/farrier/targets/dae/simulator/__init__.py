"""The simulator of an accelerator: the results of its programs, and the cycles that they take."""
