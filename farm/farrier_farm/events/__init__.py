"""The events of a whole farm, and the webhooks to which they are sent."""
