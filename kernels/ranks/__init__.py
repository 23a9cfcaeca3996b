"""Exchanges between ranks of one machine, in memory that they share."""
