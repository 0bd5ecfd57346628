"""The parts that all GPUs share: rules that give kernels to blocks of threads, and the loop passes
after them."""
