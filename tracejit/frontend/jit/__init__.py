"""Traced functions: recording a call, replaying later ones, running piecewise.

Modules, from the function that users call downwards:

    jit, signatures          the function that users call: selects a signature, shows its caches
    record, complete         records a call: the body runs, then its replay program is completed
    look_steps               numbers and looks as steps of that program
    state_loops              loops over looks as steps of that program
    launch_records           launches as steps of that program
    number_variables         numbers of the call as variables of that program
    entries, trace_tree      what is stored of a call; the paths of a signature
    piecewise                runs the body as eager code
    vouch, specs, explain    `pure` and `callback`; arrays without memory; explanations for users
"""
