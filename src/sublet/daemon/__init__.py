"""The local daemon: store, delegator and executor services, control API; `sublet.app` puts it together."""
