"""The common part of all GPU targets: schedule rules that assign kernels to blocks of threads, and
the loop passes that run after them."""
