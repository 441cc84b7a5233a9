"""Structured pruning: fewer channels and heads, proved equal to the masked model, kept as a channel map."""
