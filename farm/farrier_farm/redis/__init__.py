"""The access to Redis: clients, time limits, the embedded server and the Lua scripts."""
