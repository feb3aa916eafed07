"""The agents that Sublet knows by one word: ``sublet up --agent claude``. What a daemon offers is another matter."""

"""The agents that Sublet knows by one word: ``sublet up --agent claude``. What a daemon offers is another matter."""
