"""Run the GPU tests with both compilers of WGSL, using drivers that this machine has or can
install."""
