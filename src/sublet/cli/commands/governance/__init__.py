"""Commands about rules, capabilities, gateways and events."""
