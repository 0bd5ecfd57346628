"""What ends a compilation: the model verified on its device, and packaged."""
