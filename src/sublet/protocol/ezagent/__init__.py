"""The ezagent protocol without sockets, files or clocks: ids, keys, envelopes, Yjs updates and who may write what."""
