"""The processes of a farm on one machine, called roles: how they are started, monitored, and
restarted."""
