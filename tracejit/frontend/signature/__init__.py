"""The signature of a traced call, as data: what a replay finds, checks, computes, makes and writes back.

program                the records, in the order in which a replay does them
slots                  places that hold a value: attributes, items, cells, globals
arguments, many        records of the arguments: what the body gets, how a replay recognises them
describe               records of what a call returns, and of what it rebinds
text, source, runtime  the replay function that is written from the records, and what it calls
perform                the steps after the launch, done for the call that is recorded
stand_ins              errors of a recorded body, without what stands for numbers and containers
"""
