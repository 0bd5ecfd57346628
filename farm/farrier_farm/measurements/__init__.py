"""The measurement batches of jobs: their queues, the runner that a worker uses, and the part that
brokers use."""
