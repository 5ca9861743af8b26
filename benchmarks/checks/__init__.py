"""Compare contenders' answers with the truth before their time counts."""
