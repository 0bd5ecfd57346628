"""The rate of a single job's trials by number of devices: measured on simulated devices, and
computed by a model for more devices than fit on this machine."""
