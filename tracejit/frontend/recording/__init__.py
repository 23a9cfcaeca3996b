"""Storages, numbers and the one recorder, eager or of a traced call.

Modules from the ground up; each may import those above it (a contract of import-linter).

    operations, sources            operations on run-time numbers, and what each number is
    number, trace_numbers          a stand-in for one; the operations of a body on all of them, as records
    location, storage, origins     the user's line; memory of arrays; where inputs of a recording come from
    recording                      the recorder: a graph under construction, and what each storage holds in it
    residuals                      values that gradients need later
    parts, partial, check          launches of a part; launches compared
    eager                          the open recording of a thread, and its launch
    draws, numpy_views, restart    records of a trace: random numbers, NumPy arrays, assumptions
    segments                       what the calls of a function launch between looks at values
    look_loops, ranges             loops of which a few iterations are recorded
    looks                          a look at a value: cuts the recording, and launches what there is
    trace                          the recording of one call
"""
