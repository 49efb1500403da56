"""What a model's files hold, and what it takes to run them; nothing here needs the weights."""
