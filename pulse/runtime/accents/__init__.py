"""Follow accents and punctuation: units and attributes that change while a query runs."""
