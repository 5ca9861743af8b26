"""Implement the commands, one a file: each reads options, calls the library, prints the result."""
