"""The output guardrail: what an agent answers, as JSON that satisfies a schema, or a defined end (SuperAgent 10)."""
