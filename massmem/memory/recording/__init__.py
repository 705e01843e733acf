"""From the queue in the log into memory."""
