"""Surroundings of a traced body: reached by name, guarded, taken back and watched.

watch              the calls of a body, before they are made
reach, members     what the names that its code mentions lead to; attributes of what was reached
changes            what the body rebound, and how that is taken back
guards             the checks by which a replay knows that all is as it was
numpy_module, math_module, numbers_found, module_stand_ins
                   what a body finds in the place of NumPy, `math`, `float` and `int`
"""
