"""Loops over looks in replays (see `recording.look_loops` for how they are recorded).

regions                        which looks of a path form a loop
loop_steps                     such a loop as a step of the replay program
loop_slots                     the loop-carried variables of iterations that run as one launch
native_loop, native_numbers    those iterations as one graph: its body, and Python's numbers in it
"""
