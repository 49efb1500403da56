"""The one context of a model: its sequences, what lies in them, and how passes run through it."""
