"""A reference node: private D-SGD by one process a node, over sockets.

It shows what a deployment has to do, and does it: agree on seeds, draw the designed noise, send
noised models only, survive a restart, and stop with a clear word where anything does not fit."""
