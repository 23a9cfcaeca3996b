"""The intermediate representation: types, operators, graphs, views, printer, verifier and NumPy evaluator."""
