"""Agent federation (CIS): addresses, events, signed envelopes, errors and states, without sockets, files or clocks."""
