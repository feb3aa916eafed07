"""The delegator's data plane: one SSH listener, who may log in, and each lease while it is served."""
