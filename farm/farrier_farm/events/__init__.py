"""The events of a whole farm, and the webhooks that receive them."""
