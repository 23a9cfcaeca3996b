"""The signature of a traced call, as data: what a replay finds, checks, computes, makes and writes back.

`program` has the records, `text` writes the replay function from them, `perform` does for the recorded call
what a replay does after its launch.
"""
