"""Accents and punctuation: elements, text form, logs, validity."""
