"""The signature of a traced call, as data: what a replay reads, checks, computes, creates and writes back.

program                  records of the steps, in the order in which a replay performs them
expressions              values in these steps: variables, constants, values derived from them
meanings, requirements   values and checks in a form that two signatures can be compared by
slots                    variables that a body can access by name: attributes, items, cells, globals
arguments, many          the arguments: the values passed to the body, and the checks by a replay
describe                 the values that a call returns, and those that it writes back
conditions, text,        the replay function that is written from the records, and the functions
source, runtime          that it calls
perform                  the steps from the launch on, performed for the recorded call
stand_ins                removes stand-ins from errors of a recorded body
"""
