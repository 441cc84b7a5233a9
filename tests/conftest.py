"""What every test shares."""

from hypothesis import settings

# An example may take any time: a loaded machine makes no test red.
settings.register_profile("any time", deadline=None)
settings.load_profile("any time")
