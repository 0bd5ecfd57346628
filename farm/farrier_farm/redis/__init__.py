"""The connection to Redis: clients, their limits on waiting, the embedded server, Lua scripts."""
