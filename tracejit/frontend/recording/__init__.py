"""Storages, numbers and the recorder, in eager code and in traced calls.

Modules; each imports only modules to its right and below, except for types (a contract of import-linter):

    trace                     the recording of one call
    looks, ranges             a look at a value: cuts the recording, and launches the operations so far;
                              counted loops of which a few iterations are recorded
    look_loops                loops over looks of which a few iterations are recorded
    segments                  the launches of a function between looks at values
    eager                     the open recording of a thread, and its launch
    partial, parts            launches of subsets of a graph, so that a failure affects only its dependents
    residuals, check          values that gradients need later; launches compared with NumPy
    numpy_views, draws        records of a trace: NumPy arrays, random numbers
    recording                 the recorder: a graph under construction, and the content of each storage
    origins, patterns, picks  origins of the inputs of a recording; groups of nodes recorded repeatedly;
                              elements selected by run-time numbers
    restart                   early ends of a recording, with other assumptions or none
    trace_numbers, number     the operations of a body on all of its numbers; a proxy of a number
    storage, location         memory of arrays; the user's line
    sources, operations       the source that identifies each number; operations on run-time numbers

The package imports `compile`, `engine`, `ir`, `loopnest`, `ops`, `passes` and `python`. It knows no
`NDArray`: storages and views only.
"""
