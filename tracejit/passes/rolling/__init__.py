"""Loop rolling: detects runs of equal iterations, proves that they are equal, and builds `loop` nodes."""
