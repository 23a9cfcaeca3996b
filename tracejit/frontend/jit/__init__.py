"""Traced functions: recording a call, replaying later ones, running piecewise.

Modules, from the function that users call to its parts:

    jit, signatures          the function that users call: which signature serves, what it shows
    record, complete         a call is recorded: the body runs, then its replay program is completed
    launch_records           launches of a recorded call, as steps of that program
    number_variables         its numbers, as variables of that program
    look_steps               looks at values, as steps of that program
    loop_regions, exits      which looks are a loop; which loops one launch can run
    exit_numbers, carried    numbers of Python's in such a launch; what its rounds carry
    entries, trace_tree      what is kept of a call; the paths of a signature
    piecewise                the body runs itself
    vouch, specs, explain    `pure` and `callback`; arrays without memory; reasons for people
"""
