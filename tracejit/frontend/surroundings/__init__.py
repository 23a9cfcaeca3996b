"""Surroundings of a traced body: the values it reaches by name, their guards, and the watch on its calls.

Modules; each imports only modules to its right and below:

    events                          the source of events of the watch, chosen by the version of Python
    monitoring, profiling           these events from `sys.monitoring` and from `sys.setprofile`
    guards                          the checks by which a replay verifies that the surroundings are
                                    unchanged
    watch                           the two events that a running body causes, and how they are handled
    surroundings                    the components of one recording; `Surroundings` documents the order in
                                    which they are used
    changes                         slots that the body rebound, and how they are restored
    installed                       stand-ins for numbers, NumPy arrays and modules, stored in slots
    refusals                        code that cannot be replayed because of the names it uses
    reach                           the slots to which names lead
    members, reads                  attributes of the values in these slots; slots that the body can have
                                    read
    executed                        the code objects that the body runs, and the names they mention
    random_module                   stand-ins for `numpy.random` and its generators
    math_module, numpy_module       stand-ins for `math` and NumPy
    module_stand_ins                stand-ins for modules written in C
    numbers_found, chosen_elements  stand-ins for `float`, `int` and other builtins; `max` and `min` of
                                    array elements

The package imports `arrays`, `engine`, `ir`, `python`, `recording` and `signature`. Of `signature` it uses
expressions, slots and records. It knows no traced functions: `jit` uses it.
"""
