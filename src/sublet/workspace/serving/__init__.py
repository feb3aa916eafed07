"""The lender's data plane: one SSH listener, who may log in, and each lease while it is served."""
