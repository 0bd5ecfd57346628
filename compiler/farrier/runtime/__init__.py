"""Run artifacts: needs numpy and the standard library, and none of the compiler."""
