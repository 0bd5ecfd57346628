"""The parts of a compilation that `farrier.pipeline` calls in order: the session that all steps
share, the import, the schedules of a specialization, and the verification.
"""
