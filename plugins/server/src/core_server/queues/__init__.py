"""The queues of one model: rows of questions, generated texts, and fits of tasks."""
