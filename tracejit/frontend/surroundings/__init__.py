"""Surroundings of a traced body: reached by name, guarded, taken back and watched.

surroundings       the parts of one recording: `Surroundings` shows in which order they are used
executed           the code that a body runs, and the names in it
reach, members     the slots to which these names lead; attributes of what was reached
installed          stand-ins for numbers, NumPy arrays and modules in these slots
refusals           code that cannot be replayed for what it names
reads, changes     slots that the body can have read; those that it rebound, and how that is undone
guards             the checks by which a replay knows that all is as it was
watch              the two events of a running body, and what they mean
events, monitoring, profiling
                   the source of these events, by the version of Python
numpy_module, math_module, numbers_found, module_stand_ins
                   stand-ins for NumPy, `math`, `float` and `int`
"""
