"""Attention in a single kernel over blocks of rows, forward and backward."""
