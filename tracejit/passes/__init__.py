"""Passes: functions from graph to graph, run by `driver`, and from a graph to its memory plan.

widen, stack, rolling, attend, simplify, cse, dce leave only the operators that the results need
stack, winograd, weight_sums, remask, recompute   choose how these are computed
fusion                                            form kernels
memory                                            place buffers, order tasks
components                                        equal parts of a graph, which pass all this once
gradient                                          nodes that compute cotangents, for the frontend
attention_patterns, diagonals, products           what passes and the frontend look for in graphs
copier                                            copies of nodes and gradient steps
"""
