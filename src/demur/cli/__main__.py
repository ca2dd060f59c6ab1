"""`python -m demur.cli`, where the command `demur` is not on the path."""

from demur.cli import main

if __name__ == "__main__":
    main()
