"""Conversations of other programs: reads their exports, and makes sessions of them."""
