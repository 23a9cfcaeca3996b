"""Exported graphs: recorded from a function, saved, loaded without the function's source, called and bound.

    export.py          records a function for several extents
    recorded_call.py   converts a recorded call to a contract (arguments, results and changes) and its graph
    contract.py        writes and parses the text of a contract
    containers.py      the kinds of containers in a contract
    validate.py        validates the text from a file
    safety.py          adds checks of indices to the graph from a file
    general.py         merges the texts for several extents into one with named extents
    interface.py       names and types of inputs, outputs and effects
    program.py         a callable text: matches arguments and emits the graph onto a recording
    results.py         builds the result of a call
    kept.py            `KeptGraph`: such a program with its parameters
    bound.py           a graph with bound arguments
    files.py           one file with text and parameters

The package builds on the frontend: a call is that of a traced function whose body emits the graph's nodes.
"""
