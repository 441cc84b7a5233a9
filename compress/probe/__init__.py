"""Probe before you start: time the kernels a method would use, on the model's own shapes, in seconds."""
