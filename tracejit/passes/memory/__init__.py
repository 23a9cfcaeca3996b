"""The memory plan: where every value lies, which buffers share memory, and which task waits for which."""
