"""How tuning one job scales with devices: measured on simulated devices, and simulated beyond."""
