"""The devices of a farm: the registry, classes, enrolment, sessions and history."""
