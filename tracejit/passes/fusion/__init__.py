"""Fusion: groups the nodes of a graph into `fused` nodes, each of which becomes one kernel and one task."""
