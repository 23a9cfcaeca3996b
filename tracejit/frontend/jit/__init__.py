"""Traced functions: recording a call, replaying later ones, running piecewise.

Modules, from the function that users call to its parts:

    jit, signatures          the function that users call: which signature serves, what it shows
    record, complete         a call is recorded: the body runs, then its replay program is completed
    launch_records, numbers  launches and numbers of a recorded call, as steps of that program
    loops, regions, exits    looks at values as steps; which are a loop; which loops one launch can run
    exit_numbers, carried    numbers of Python's in such a launch; what its rounds carry
    entries, trace_tree      what is kept of a call; the paths of a signature
    piecewise                the body runs itself
    vouch, specs, explain    `pure` and `callback`; arrays without memory; reasons for people
"""
