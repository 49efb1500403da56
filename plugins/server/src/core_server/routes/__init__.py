"""The routes of the server: each module reads one kind of request and answers it."""
