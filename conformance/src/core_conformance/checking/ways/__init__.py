"""The table of ways: every operation in one form, and the oddities that each can meet."""
