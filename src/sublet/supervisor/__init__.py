"""The agents that do the work: agent.json, providers and slots."""
