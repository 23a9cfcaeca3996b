"""Exported graphs: recorded from a function, saved, loaded without the function's source, called and bound.

Modules; each imports only modules to its right and below:

    export                records a function for several extents
    files                 one file with text and parameters
    kept                  `KeptGraph`: a callable text with its parameters
    bound                 a graph with bound arguments
    program               a callable text: matches arguments and emits the graph onto a recording
    recorded_call         converts a recorded call to a contract (arguments, results and changes) and its
                          graph
    results               builds the result of a call
    interface             names and types of inputs, outputs and effects
    validate, safety      validates the text from a file; adds checks of indices to its graph
    general               merges the texts for several extents into one with named extents
    contract, containers  writes and parses the text of a contract; the kinds of containers in it

The package builds on the frontend: a call is that of a traced function whose body emits the graph's nodes. It
knows graphs and `drawing`, but neither code generation nor the engine.
"""
