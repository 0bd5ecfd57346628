"""The devices of a farm: their registry, classes, enrolment, sessions and history."""
