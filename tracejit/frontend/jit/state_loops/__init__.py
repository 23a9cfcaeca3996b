"""Loops over looks in replays (see `recording.look_loops` for how they are recorded).

Modules; each imports only modules to its right and below:

    loop_steps                  a loop over looks as a step of the replay program
    native_loop, first_call     iterations that run as one launch, in replays and in the call that is recorded
    branching, cycles, selecting
                                their graph: with branches, of a cycle of transitions, or with selects of
                                computed transitions
    loop_builder                what the three have in common: operands, segments, transitions
    intervals                   what the conditions of branches imply for integers
    loop_slots, native_numbers  the loop-carried variables of these iterations; Python's numbers in them
    adoption                    transitions that other paths of the function have recorded
    regions                     which looks of a path are steps of a loop

The package imports `ir`, `kernels`, `launch_records`, `loopnest`, `number_variables`, `ops`, `passes`,
`python`, `recording` and `signature`. It writes records of `signature.program`.
"""
