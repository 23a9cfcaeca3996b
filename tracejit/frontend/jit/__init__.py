"""Traced functions: recording a call, replaying later ones, running piecewise.

Modules; each imports only modules to its right and below:

    jit, signatures      the function that users call: selects a signature, shows its caches
    explain, specs       explanations for users; arrays without memory
    record               records a call: the body runs, then its replay program is completed
    complete             completes this program
    trace_tree, entries  the paths of a signature; what is stored of a call
    look_steps           numbers and looks as steps of that program
    state_loops          loops over looks as steps of that program
    launch_records       launches as steps of that program
    number_variables     numbers of the call as variables of that program
    piecewise, vouch     runs the body as eager code; `pure` and `callback`

The package imports `arrays`, `assembly`, `compile`, `engine`, `ir`, `kernels`, `loopnest`, `ops`, `passes`,
`python`, `recording`, `signature` and `surroundings`. No other package of the frontend imports it.
"""
