"""``python -m noisedesign``."""

from noisedesign.cli import main

if __name__ == "__main__":
    main()
