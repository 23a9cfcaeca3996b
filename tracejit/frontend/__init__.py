"""What people use: arrays, the recorder, traced functions, gradients and the function namespace."""
