"""Types, graphs, operators' records, views, printer, verifier and the NumPy evaluator."""
