"""The one choke point: decide(subject, action, resource) -> Decision."""
