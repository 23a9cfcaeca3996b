"""Memory planning: the location of every value, buffers that share memory, and dependencies of tasks.

Modules; each imports only modules to its right and below:

    plan         the memory plan: locations, and dependencies of tasks
    pack, arena  offsets of buffers; allocation by best fit in one arena
    timing       the earliest start of tasks, and their order
    legalize     inserts copies that are needed for a correct assignment
    agreement    one outcome of a call with collectives on all ranks
    aliases      values that share memory according to the semantics of nodes

The package imports `ir`, `ops` and `tuning`.
"""
