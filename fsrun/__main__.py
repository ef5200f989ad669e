"""``python -m fsrun`` is the command ``fsrun``."""

from fsrun.cli import main

if __name__ == "__main__":
    main()
