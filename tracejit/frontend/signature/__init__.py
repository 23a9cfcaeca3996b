"""The signature of a traced call, as data: what a replay reads, checks, computes, creates and writes back.

Modules; each imports only modules to its right and below:

    describe                the values that a call returns, and those that it writes back
    stand_ins               removes stand-ins from errors of a recorded body
    arguments               the values passed to the body, and their checks in a replay
    text                    the replay function that is written from the records
    requirements            checks in a form that two signatures can be compared by
    conditions              checks of one path in a form that another one can perform
    meanings                values in a form that two signatures can be compared by
    expression_text         values, checks and results as Python
    many                    many arrays, which loops check
    perform                 the steps from the launch on, performed for the recorded call
    slots                   variables that a body can access by name: attributes, items, cells, globals
    program                 records of the steps, in the order in which a replay performs them
    runtime, source         functions that the replay function calls; its compilation
    expressions             values in these steps: variables, constants, values derived from them

The package imports `arrays`, `engine`, `ir`, `ops`, `python` and `recording`. It knows no surroundings and
no traced functions: these fill its records.
"""
