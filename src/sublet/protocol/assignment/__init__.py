"""An assignment: one delegation on the side of the executor, which does the work (AWCP 4, DESIGN 4).

``core.step`` decides; ``sublet.daemon.working`` journals, sends, waits and mounts.
"""
