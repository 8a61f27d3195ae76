"""Services of Python and the machine: workers, random streams, files, checks of arguments."""
