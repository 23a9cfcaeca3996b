"""Attention in one kernel over blocks of rows, forward and backward."""
