"""Exchanges between ranks of one machine, in memory that they share.

Modules; each imports only modules to its right and below:

    entry_points            the functions that `tracejit.distributed` calls
    tasks                   exchanges as tasks of the engine, which begin and end without Python
    exchange                exchanges, advanced by whichever thread polls
    direct, staged, stored  their steps: read from the peers' memory, copied piecewise, or through blocks of
                            shared memory
    slices, combine         the slices of an array, and their sums in a balanced tree
    link, notices           an emulated network link; short notices through rings, and blocks of memory
    layout                  byte offsets in shared memory; imports nothing, and Python uses it too

The package imports `compiler` and `executor`. It knows nothing of MPI, which only `tracejit.distributed`
uses.
"""
