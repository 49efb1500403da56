"""The parts of checks: a subject, questions to it, and the comparison of its answers."""
