"""The native executor: queues, threads and records of the engine, compiled like kernels.

All functions are word functions (`tracejit.kernels.compiler.words`), except one that adds floats.

Modules; each imports only modules to its right and below:

    entry_points     the functions that the engine calls
    launch, direct   launches: arguments patched, tasks queued or run inline; programs without a launch
    devices          tasks that a device completes asynchronously
    wait             waiting: the thread runs tasks on which its condition depends
    loop, run, team  threads run chunks of tasks; a team helps with the iterations of a loop
    queues           variables grant requests, granted requests make tasks ready
    python           builtin functions of CPython, written as kernels
    threads          the lock, the clock, idle threads
    layout, blocks   byte offsets of the records; they import nothing, and Python uses them too

The package imports `compiler`. It knows tasks as addresses of functions and argument blocks, not what they
compute.
"""
