"""The events of a whole farm, and the webhooks that are told of them."""
