"""The noise of a node on tensors, drawn where they are, with the bits that the processor draws.

It needs torch, and nothing else of this package imports it."""

from noisedesign.noise.device.source import DeviceNoise as DeviceNoise, add_ as add_, on as on
