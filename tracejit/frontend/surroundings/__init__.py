"""Surroundings of a traced body: the values it reaches by name, their guards, and the watch on its calls.

surroundings       the components of one recording; `Surroundings` documents the order in which they are used
executed           the code objects that the body runs, and the names they mention
reach, members     the slots to which these names lead; attributes of the values in these slots
installed          stand-ins for numbers, NumPy arrays and modules, stored in these slots
refusals           code that cannot be replayed because of the names it uses
reads, changes     slots that the body can have read; slots that it rebound, and how they are restored
guards             the checks by which a replay verifies that the surroundings are unchanged
watch              the two events that a running body causes, and how they are handled
events, monitoring, profiling
                   the source of these events, chosen by the version of Python
numpy_module, math_module, numbers_found, module_stand_ins
                   stand-ins for NumPy, `math`, `float`, `int` and other builtins
"""
