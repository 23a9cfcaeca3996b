"""The native executor: queues, threads and records of the engine, compiled like kernels.

layout, blocks           byte offsets of its records; they import nothing, Python uses them, too
queues                   variables grant requests, granted requests make tasks ready
run, team, loop          threads run chunks of tasks; teams help with rounds of a loop
launch, direct           a launch: arguments patched, tasks queued or run here; small ones at once
threads, wait            the lock, the clock, idle threads, waiting
devices                  tasks of devices that complete later
python                   Python's builtin functions, written as kernels
entry_points             what the engine calls
"""
