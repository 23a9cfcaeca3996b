"""The public side: arrays, the recorder, traced functions, gradients and the function namespace.

Eight packages, from the function that users call down; each imports only packages below it:

    jit           traced functions: record a call, replay later ones, run piecewise, explain
    surroundings  the values that a body reaches by name: guarded, restored, watched
    signature     a signature as data, and the replay function written from it
    transforms    `vmap`, Jacobians, custom gradients, recomputation, control flow as functions
    grad          gradients, as nodes appended to a recording
    arrays        `NDArray`, promotion, dispatch, indexing, the public functions
    recording     storages, run-time numbers, the recorder in eager code and in traced calls
    python        Python code and values, without arrays and recordings

The frontend knows graphs, operators and the compiler (`ir`, `ops`, `compile`, `engine`, and the gradients
and rolled loops of `passes`). One or two modules import each of `targets` (`arrays.devices`), `codegen`
(`arrays.machine_code`), `kernels` (`arrays.machine_code`, `python.objects`) and `assembly` (`jit.vouch`).
No lower layer imports it; `graphs`, `nn`, `optim`, `data`, `distributed` and `kvstore` are its clients.
"""
