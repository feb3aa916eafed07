"""What a person approves: her key, open questions, the grants that come of them, and the gate before every tool."""
