"""Storages, numbers and the recorder, in eager code and in traced calls.

Modules from the ground up; each may import those above it (a contract of import-linter).

    operations, sources            operations on run-time numbers, and the source that identifies each number
    number, trace_numbers          a proxy of a number; the operations of a body on all of its numbers
    location, storage, origins     the user's line; memory of arrays; origins of the inputs of a recording
    recording                      the recorder: a graph under construction, and the content of each storage
    residuals                      values that gradients need later
    parts, partial, check          launches of parts of a graph; launches compared with NumPy
    eager                          the open recording of a thread, and its launch
    draws, numpy_views, restart    records of a trace: random numbers, NumPy arrays, assumptions
    segments                       the launches of a function between looks at values
    look_loops, ranges             loops of which a few iterations are recorded
    looks                          a look at a value: cuts the recording, and launches the operations so far
    trace                          the recording of one call
"""
