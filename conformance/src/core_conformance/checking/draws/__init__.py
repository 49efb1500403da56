"""What options make of a draw: tables of options, the oracle that works draws out again, counts."""
