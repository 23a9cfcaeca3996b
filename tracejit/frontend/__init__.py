"""The public side: arrays, the recorder, traced functions, gradients and the function namespace."""
