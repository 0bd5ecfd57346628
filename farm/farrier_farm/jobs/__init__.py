"""The jobs of a farm: from the request and its admission to trials, curves and versions."""
