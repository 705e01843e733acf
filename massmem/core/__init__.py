"""The vocabulary and the rules: events, messages, records, errors, voting. Pure; imports nothing of massmem."""
