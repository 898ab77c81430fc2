"""Noise of a node inside real trainers: one small module a trainer, which is loaded by its name.

Every module imports its trainer, so nothing else imports the module; it is tested against the real
package. What it adds to a trainer comes from :mod:`noisedesign.noise`."""
