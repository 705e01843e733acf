"""The session store on Redis."""
