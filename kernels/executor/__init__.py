"""The native executor: queues, threads and records of the engine, compiled like kernels.

layout, blocks           byte offsets of its records; they import nothing, and Python uses them too
queues                   variables grant requests, granted requests make tasks ready
run, team, loop          threads run chunks of tasks; a team helps with the iterations of a loop
launch, direct           launches: arguments patched, tasks queued or run inline; programs without a launch
threads, wait            the lock, the clock, idle threads, waiting
devices                  tasks that a device completes asynchronously
python                   builtin functions of CPython, written as kernels
entry_points             the functions that the engine calls
"""
