"""Wire types, state tables, ids, errors and envelopes: no sockets, files or clocks."""
