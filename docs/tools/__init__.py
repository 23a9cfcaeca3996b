"""Tools that write and build the documents."""
