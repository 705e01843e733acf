"""Records messages of the log as memories: the queue in the store on one side, the index on the other."""
