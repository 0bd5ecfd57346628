"""The GPU tests under both compilers of WGSL, with the drivers that this machine has or can
install."""
