"""A reference node: private D-SGD by one process a node, over sockets. It agrees on seeds, sends
noised models only, survives a restart, and stops with a clear word where anything does not fit."""
