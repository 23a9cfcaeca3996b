"""Loops over looks in replays (see `recording.look_loops` for how they are recorded).

Modules; each imports only modules to its right and below:

    loop_steps                  a loop over looks as a step of the replay program
    native_loop                 iterations that run as one launch: the body as a graph
    loop_slots, native_numbers  the loop-carried variables of these iterations; Python's numbers in them
    regions                     which looks of a path form a loop

The package imports `ir`, `launch_records`, `number_variables`, `ops`, `passes`, `recording` and
`signature`. It writes records of `signature.program`.
"""
