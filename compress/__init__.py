"""compress: can compression help your model on your machine, the cheapest way there, and the proof."""

__version__ = "0.1.0"
