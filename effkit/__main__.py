"""``python -m effkit`` is the command line."""

from effkit.cli import main

if __name__ == "__main__":
    main()
