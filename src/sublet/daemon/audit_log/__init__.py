"""The audit log: every decision with its outcome, append-only and hash-chained, which `sublet audit verify` checks."""
