"""What a traced body reaches by name: found, guarded, taken back and watched."""
