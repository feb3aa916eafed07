"""A delegation on the side of the delegator, which lends (AWCP 4, DESIGN 4).

``core.step`` decides; ``sublet.daemon.lending`` journals, sends, waits and serves.
"""
