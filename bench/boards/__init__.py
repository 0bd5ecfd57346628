"""Tests of Farrier on emulated arm64 machines: `make boards`."""
