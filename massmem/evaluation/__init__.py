"""Measures how well teams answer questions whose answers are known."""
