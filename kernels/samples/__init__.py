"""Samples at regular instants and programs that run over them."""
