"""What the daemon offers its faces: ``DaemonApi``, and what is asked and answered, as JSON objects of fixed shape."""
