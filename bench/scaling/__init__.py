"""The scaling of one job's tuning with the number of devices: measured on simulated devices, and
simulated beyond."""
