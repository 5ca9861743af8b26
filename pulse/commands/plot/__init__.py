"""The commands of ``pulse plot``."""
