"""Passes: functions from graph to graph (`simplify`, `cse`, `dce`, `fuse`), gradients, the memory plan."""
