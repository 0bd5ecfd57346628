"""The tests of GPUs with both compilers of WGSL, on what drivers this machine has or can get."""
