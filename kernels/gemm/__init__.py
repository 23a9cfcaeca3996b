"""Matrix products: plan, register tiles, packing."""
