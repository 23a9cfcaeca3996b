"""Graphs that are kept: exported from a function, saved, loaded where the function is not, called and bound.

    export.py          records a function for several extents
    recorded_call.py   one recorded call as a contract: what it takes, returns and changes, and its graph
    contract.py        the text of a contract, written and read
    containers.py      the kinds of containers in a contract
    validate.py        whether a text from a file is a contract
    general.py         texts for several extents as one, with named extents
    program.py         a text as something to call: arguments matched, the graph emitted onto a recording
    kept.py            `KeptGraph`, which holds parameters and such a program
    bound.py           a graph with arrays of its own
    files.py           one file for text and parameters

A user of the frontend: a call is that of a traced function whose body emits the graph's nodes.
"""
