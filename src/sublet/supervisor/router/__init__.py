"""Where a request goes: to an agent, to a module, to a person, or nowhere; with how sure that is, and why."""
