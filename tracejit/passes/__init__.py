"""Passes: functions from graph to graph, run by `driver`, and the passes from a graph to its memory plan.

widen, stack, rolling, attend, simplify, cse, dce leave only the operators that the results need
stack, winograd, weight_sums, remask, recompute   select algorithms, and what is recomputed
fusion                                            forms kernels
memory                                            assigns memory to buffers, orders tasks
components                                        deduplicates equal parts of a graph before these passes
gradient                                          emits the nodes that compute cotangents, for the frontend
attention_patterns, diagonals, products           pattern matching for passes and the frontend
copier                                            copies nodes and gradient steps
"""
