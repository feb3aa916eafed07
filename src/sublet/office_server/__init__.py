"""The face of offices: Socket.IO for the published clients of A2C-SMCP. It translates, and never decides."""
