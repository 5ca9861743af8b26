"""One command a file: it reads options, calls the library, prints the result."""
