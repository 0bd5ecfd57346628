"""The measurements of a job: their queues, the runner in a worker, the broker's end."""
