"""Run artifacts: this package needs only numpy and the standard library, not the compiler."""
