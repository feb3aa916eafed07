"""Makes routes, calls, questions to policy and documents from the operations that ``daemon.api`` states."""
