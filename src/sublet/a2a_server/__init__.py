"""The A2A face: agent card, AWCP extension, routes and the outgoing client."""
