"""The parts of ``fsrun.snapshot``: where each tensor stands in the files, copies in host memory, files, folders."""
