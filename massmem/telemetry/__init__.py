"""What can be observed from outside: spans of turns, and the lines of what came in and went out."""
