"""Passes: functions from graph to graph (`simplify`, `cse`, `dce`, `fuse`), gradients, and the memory plan."""
