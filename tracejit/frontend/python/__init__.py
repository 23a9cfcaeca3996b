"""Python code and values: bytecode, containers, attributes, kinds of values, functions known to be pure."""
