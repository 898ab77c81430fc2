"""The search for noise, the finished design, its plan for nodes and the privacy of its first
steps."""
