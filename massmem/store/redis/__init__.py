"""The session store on Redis. `store.py` opens it; the rest are its parts: what each key holds is said in `keys.py`."""
