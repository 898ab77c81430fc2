"""What is measured for the documentation: by which commands, when, and on which code.

``list.toml`` has every measurement, ``docs/measured`` what each printed, and the pages show it
between ``<!-- measured: ... -->`` and ``<!-- end of measured -->``.
"""
