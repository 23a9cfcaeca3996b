"""The intermediate representation: types, operators, graphs, views, printer, verifier and NumPy evaluator.

Modules; each imports only modules to its right and below:

    evaluate, verify  the reference evaluator with NumPy; the verifier of graph invariants
    text, structure   the serialised form of graphs; structural equality, and copies
    iterations        graphs of loop iterations that differ in integers only, merged
    graph             values, nodes and graphs, in static single assignment form
    op, printer       the record that declares an operator, and the registry; graphs as text for readers
    extents, types    named extents; shape, dtype and device of a value
    view, moving      affine views; integers that vary over the iterations of a loop

The package imports no other layer than `errors`, `device_kinds` and `forking`. It knows operators as records
(`op`), not their declarations (`ops`).
"""
