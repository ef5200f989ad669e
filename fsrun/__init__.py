"""A training run is a folder: scalars, heartbeats and the hand-over of checkpoints as plain files."""

# The build reads the version from this line.
__version__ = "0.1.0"
