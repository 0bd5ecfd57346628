"""The `farrier` command."""
