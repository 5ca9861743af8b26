"""Apply and undo changes of units on segments and tuples."""
