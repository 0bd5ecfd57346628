"""The jobs of a farm: request, admission, trials, tuning curves and artifact versions."""
